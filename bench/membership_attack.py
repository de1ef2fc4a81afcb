#!/usr/bin/env python3
"""Measures how well the loss of a row tells whether the row was trained on: membership inference (Yeom et al. 2018).

Usage: bench/membership_attack.py --program build/evenkeel --model builtin:tiny-olmoe --out FOLDER [--epsilon 8 2] [--rows 60]

One client trains on half of random rows, without privacy and with each epsilon ([privacy] unit = "example"). The other half
comes from the same distribution. The attacker scores every row with the final adapter, and calls rows of small loss members.
Prints the area under its ROC curve, 0.5 for guessing, with a 95 % interval by bootstrap over rows, before training (a
control) and after it, and the epsilon that the attack shows at least: from a threshold chosen on half of the rows, and the
Clopper-Pearson bounds of its rates on the other half, at 95 % together.
"""
import argparse
import json
import pathlib
import random
import subprocess

import numpy as np
from scipy import stats

WORDS = "amber birch cedar delta ember fjord grove haven inlet jetty".split()


def rows_of(count, draw):
    return [{"prompt": f"Locker {draw.randint(10_000, 99_999)}:", "completion": " " + " ".join(draw.choices(WORDS, k=3))} for _ in range(count)]


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def config_of(folder, options, epsilon):
    private = f'[privacy]\nunit = "example"\nepsilon = {epsilon}\ndelta = {options.delta}\nclip = {options.clip}\n' if epsilon else ""
    file = folder / "run.toml"
    file.write_text(f"""name = "attacked"
threads = {options.threads}
[model]
path = "{options.model}"
compute_dtype = "float32"
[lora]
rank = 16
alpha = 32
[data]
task = "files"
files = {{ train = ["{folder.parent / 'members.jsonl'}"], test = ["{folder.parent / 'all.jsonl'}"], score = "nll" }}
[clients]
count = 1
budgets = [1.0]
[method]
name = "fedit"
[train]
rounds = 2
local_epochs = {options.epochs / 2}
batch_size = 4
accumulation = {options.accumulation}
optimizer = {{ lr = {options.lr} }}
{private}[evaluate]
budgets = [1.0]
items = true
before = true
as_exported = false
""")
    return file


def losses(run, rows, rounds):
    """The losses of members and others, in nats per row, after so many rounds."""
    line = json.loads((run / f"items/round-{rounds}.jsonl").read_text().splitlines()[-1])
    found = -np.array(line["log_likelihood"])
    assert len(found) == 2 * rows
    return found[:rows], found[rows:]


def area(members, others):
    """The probability that a member has the smaller loss."""
    return np.mean((members[:, None] < others[None, :]) + 0.5 * (members[:, None] == others[None, :]))


def interval(members, others, draw):
    resampled = [area(draw.choice(members, len(members)), draw.choice(others, len(others))) for _ in range(2000)]
    return np.quantile(resampled, [0.025, 0.975])


def least_epsilon(members, others, delta):
    """The epsilon that the rates of one threshold show at least, with 95 % confidence."""
    half = len(members) // 2
    candidates = np.concatenate([members[:half], others[:half]])
    rates = [((members[:half] <= t).mean() - (others[:half] <= t).mean(), t) for t in candidates]
    threshold, n = max(rates)[1], len(members) - half
    hits, alarms = int((members[half:] <= threshold).sum()), int((others[half:] <= threshold).sum())
    hit_rate = stats.beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    alarm_rate = stats.beta.ppf(0.975, alarms + 1, n - alarms) if alarms < n else 1.0
    return max(0.0, float(np.log((hit_rate - delta) / alarm_rate))) if hit_rate > delta else 0.0


def measured(options, name, run, rounds, epsilon):
    members, others = losses(run, options.rows, rounds)
    low, high = interval(members, others, np.random.default_rng(1))
    return {"setting": name, "epsilon": epsilon, "area": round(float(area(members, others)), 4), "area_low": round(low, 4),
            "area_high": round(high, 4), "epsilon_shown": round(least_epsilon(members, others, options.delta), 3),
            "loss_members": round(float(members.mean()), 3), "loss_others": round(float(others.mean()), 3), "rows": len(members)}


def attacked(options, name, epsilon):
    """Yields what is measured before training (a control) and after it."""
    folder = options.out / name
    folder.mkdir()
    subprocess.run([options.program, "--quiet", "train", config_of(folder, options, epsilon), "--out", folder / "run"], check=True, stdout=subprocess.DEVNULL)
    if not epsilon:
        yield measured(options, "untrained", folder / "run", 0, None)
    last = json.loads((folder / "run/rounds.jsonl").read_text().splitlines()[-1])["clients"][0]
    yield measured(options, name, folder / "run", 2, last["privacy"]["epsilon"] if "privacy" in last else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--model", default="builtin:tiny-olmoe")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[8.0, 1.0])
    parser.add_argument("--rows", type=int, default=60, help="members; as many others")
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--accumulation", type=int, default=1, help="times 4 rows per step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True)
    draw = random.Random(options.seed)
    rows = rows_of(2 * options.rows, draw)
    write(options.out / "members.jsonl", rows[:options.rows])
    write(options.out / "all.jsonl", rows)
    for name, epsilon in [("none", None), *((f"epsilon-{value:g}", value) for value in options.epsilon)]:
        for line in attacked(options, name, epsilon):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
