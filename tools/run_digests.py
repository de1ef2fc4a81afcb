#!/usr/bin/env python3
"""Digests of small runs of all methods, to compare before and after a change that must not change a bit.

    tools/run_digests.py --program build/evenkeel --out before.json
    ... change, build ...
    tools/run_digests.py --program build/evenkeel --out after.json --compare before.json

Each run gives sha256 values: of the folder adapter/, of rounds.jsonl and of evaluations.jsonl without measured times, and of
two fields of the evaluations, log_likelihood and likelihood_rows. The digests of a file that is older than these fields have no
value for them; the output says so. Both fields of each record are also compared with the scores of its single rows.
The runs are all methods on a sparse model (participation 0.6, unequal budgets), on a dense model with unequal ranks, with
factors in bfloat16, killed and resumed, on two ranks, and one served federation of two nodes. A resumed run and a run on two
ranks must have the digests of the plain run. Minutes in all.
Exit 1 when a digest differs or is missing, a run fails, or no run was made.
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONFIG = ROOT / "configs/tiny/train.toml"
SPARSE = ("ub-smoe", "a3smoe", "smoe-llb", "hetlora", "flexlora", "flora", "florist", "fedex-lora", "ffa-lora", "fedit", "fed-sb", "slimmable-moe")
DENSE = ("hetlora", "flexlora", "flora", "florist", "fedex-lora", "ffa-lora", "fedit", "fed-sb")
METHOD_SETTINGS = {"fed-sb": ["method.fed-sb.init='federated'", "lora.targets=['q_proj', 'down_proj']"],
                   "a3smoe": ["method.a3smoe.rescaler='learn'"]}
DENSE_SETTINGS = ["model.path='builtin:tiny-olmo'", "lora.rank=8", "lora.alpha=8", "clients.count=4", "clients.budgets=[0.125, 0.25, 0.5, 1.0]",
                  "clients.participation=1.0", "train.rounds=2", "evaluate.limit=1", "data.limit=40"]
RENAMED = {"reading": "rank_eval_mode"}  # renamed fields of records
BASE_MODEL = re.compile(rb'"base_model_name_or_path": "[^"]*"')  # a path
UNCOMPARED = {"seconds", "checksum", "version", "format"}
OF_ROWS = ("log_likelihood", "likelihood_rows")  # fields of evaluations with digests of their own, which old files lack
POINT = ("round", "task", "budget", "rank_eval_mode", "served_by", "client", "rows_of")  # identifies a score
PLAIN = {"resumed": "sparse", "ranks": "sparse"}  # runs that are made in another way, and the same runs made plainly
ROUNDS = 3  # of configs/tiny/train.toml


def settings(entries):
    return [word for entry in entries for word in ("--set", entry)]


def cases(model):
    """Returns name -> settings of a run. The prefix tells how it is run."""
    for name, changes in settings_of_cases(model):
        yield name, [*changes, "evaluate.items=true"]


def settings_of_cases(model):
    sparse = [f"model.path='{model}'"]
    for method in SPARSE:
        own = [f"method.name='{method}'", *METHOD_SETTINGS.get(method, [])]
        yield f"sparse/{method}", sparse + own
        yield f"bf16/{method}", sparse + own + ["model.compute_dtype='bfloat16'", "train.transport_dtype='bfloat16'", "train.rounds=2"]
    for method in DENSE:
        own = [f"method.name='{method}'", *METHOD_SETTINGS.get(method, [])]
        yield f"dense/{method}", own + DENSE_SETTINGS
    for method in ("ub-smoe", "flora", "fedex-lora"):
        yield f"resumed/{method}", sparse + [f"method.name='{method}'"]
        yield f"ranks/{method}", sparse + [f"method.name='{method}'"]
    yield "served/ub-smoe", sparse + ["clients.count=2", "clients.budgets=[0.25, 1.0]", "clients.participation=1.0", "data.limit=24",
                                      "train.rounds=2", "evaluate.limit=2"]


class Runner:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}

    def command(self, *words):
        return [self.program, *map(str, words)]

    def succeed(self, *words):
        done = subprocess.run(self.command(*words), cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr[-800:]}")

    def start(self, *words):
        return subprocess.Popen(self.command(*words), cwd=ROOT, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, name, changes):
        out = self.folder / name.replace("/", "-")
        train = ["train", CONFIG, "--out", out, *settings(changes)]
        {"resumed": self.resumed, "ranks": self.ranks, "served": self.served}.get(name.split("/")[0], self.plain)(out, train)
        return digests(out)

    def plain(self, out, train):
        self.succeed(*train)

    def ranks(self, out, train):
        self.succeed(*train, "--ranks", 2)

    def resumed(self, out, train):
        """Kills a run as soon as the first round is recorded, and resumes it."""
        process = self.start(*train)
        while process.poll() is None and not (out / "rounds.jsonl").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        rounds = (out / "rounds.jsonl").read_text().count("\n") if (out / "rounds.jsonl").exists() else 0
        if process.returncode != -signal.SIGKILL or not 0 < rounds < ROUNDS:
            raise RuntimeError(f"it was not killed between two rounds: exit code {process.returncode} after {rounds} rounds")
        self.succeed("train", CONFIG, "--out", out, "--resume")

    def served(self, out, train):
        server = self.start("serve", *train[1:], "--listen", "127.0.0.1:0", "--insecure", "--open")
        address = next(found[0] for line in server.stdout if (found := re.findall(r"http://(\S+)", line)))
        nodes = []
        for name in ("one", "two"):
            self.succeed("keygen", out.with_suffix(f".{name}.pem"))
            nodes.append(self.start("node", "--superlink", address, "--insecure", "--once", "--poll", "0.1", "--key",
                                    out.with_suffix(f".{name}.pem"), "--model", self.folder / "model"))
        rest, _ = server.communicate(timeout=300)
        for node in nodes:
            node.communicate(timeout=60)
        if server.returncode:
            raise RuntimeError(f"serve: {rest[-800:]}")


def plain_record(value, without=UNCOMPARED):
    """Returns a record without measured values, with the newest names of its fields."""
    if isinstance(value, dict):
        return {RENAMED.get(key, key): plain_record(entry, without) for key, entry in value.items() if key not in without}
    return [plain_record(entry, without) for entry in value] if isinstance(value, list) else value


def lines_of(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


def sha256_of(value):
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def point_of(record):
    newest = {RENAMED.get(key, key): value for key, value in record.items()}
    return tuple(newest.get(key, "run" if key == "served_by" else None) for key in POINT)


def check_likelihoods(evaluations, items):
    """Checks that every log-likelihood is the mean of those of its rows, and that likelihood_rows is their number."""
    of_rows = {point_of(item): item["log_likelihood"] for item in items}
    for record in evaluations:
        values, mean, rows = of_rows.get(point_of(record), []), record.get("log_likelihood"), record.get("likelihood_rows")
        who = f"the score {point_of(record)}"
        if not values or mean is None:
            raise RuntimeError(f"{who} has log_likelihood {mean} and {len(values)} rows")
        if abs(mean - math.fsum(values) / len(values)) > 2e-6 or mean >= 0:  # those of rows are rounded to 1e-6
            raise RuntimeError(f"{who} has log_likelihood {mean}, the mean of its rows is {math.fsum(values) / len(values)}")
        if rows != len(values) or rows > record["rows"]:
            raise RuntimeError(f"{who} has likelihood_rows {rows}, {len(values)} of its {record['rows']} rows have a likelihood")


def digests(out):
    adapter = hashlib.sha256()
    for file in sorted((out / "adapter").iterdir()):
        if file.name != "README.md":
            adapter.update(file.name.encode() + BASE_MODEL.sub(b"", file.read_bytes()))
    values = {"adapter": adapter.hexdigest()}
    for name in ("rounds.jsonl", "evaluations.jsonl"):
        values[name] = sha256_of([plain_record(line, UNCOMPARED.union(OF_ROWS)) for line in lines_of(out / name)])
    evaluations = lines_of(out / "evaluations.jsonl")
    check_likelihoods(evaluations, [item for file in sorted((out / "items").iterdir()) for item in lines_of(file)])
    for field in OF_ROWS:
        values[field] = sha256_of([[point_of(record), record.get(field)] for record in evaluations])
    return values


def differences(found, known):
    """Returns what differs from the digests of an older file, and the fields that it has no digests of."""
    differing, unknown = [], set()
    for name, parts in found.items():
        for part, value in parts.items():
            if name in known and part in OF_ROWS and part not in known[name]:
                unknown.add(part)
            elif known.get(name, {}).get(part) != value:
                differing.append(f"{name}: {part}" + ("" if part in known.get(name, {}) else " is not in the older file"))
    return differing, sorted(unknown)


def unlike_plain(found):
    """Returns the digests in which a run that was resumed or ran on ranks differs from the same run made plainly."""
    pairs = ((name, name.replace(way, plain, 1)) for name in found for way, plain in PLAIN.items() if name.startswith(f"{way}/"))
    return [f"{name}: {part} is not that of {plain}" for name, plain in pairs if plain in found
            for part in found[name] if found[name][part] != found[plain][part]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/evenkeel", type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--compare", type=pathlib.Path)
    parser.add_argument("--only", default="", help="names of runs that begin with this")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of every run, as model.engine='aten'")
    arguments = parser.parse_args()
    found, failed = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(arguments.program.resolve(), pathlib.Path(folder))
        runner.succeed("pretrain", "configs/tiny/pretrain.toml", "--out", runner.folder / "model")
        for name, changes in cases(runner.folder / "model"):
            if name.startswith(arguments.only):
                try:
                    found[name] = runner.run(name, [*changes, *arguments.set])
                except (RuntimeError, OSError, StopIteration, subprocess.TimeoutExpired) as error:
                    print(f"{name}: {error}")
                    failed += 1
    arguments.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    known = json.loads(arguments.compare.read_text()) if arguments.compare else found
    differing, unknown = differences(found, known)
    differing += unlike_plain(found)
    if unknown:
        print(f"{arguments.compare} has no digests of {', '.join(unknown)}: they are compared with the scores of single rows alone")
    print("\n".join(differing + [f"{len(found)} runs, {failed} failed, {len(differing)} digests differ"]))
    return 1 if failed or differing or not found else 0


if __name__ == "__main__":
    sys.exit(main())
