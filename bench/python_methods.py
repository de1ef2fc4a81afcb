#!/usr/bin/env python3
"""Compares FedIT in C++ with the same method whose hooks are overridden in Python, on the demo's config.

    bench/python_methods.py [--rows 1600] [--rounds 4] [--repeats 3] [--out RECORD.json]

The classes read every tensor and change no bit: one has the server's hooks, one edits every gradient of every step. Runs
alternate. A run is always scored after its last round: here on one row at one budget, which takes 0.04 seconds. Each figure is
the smallest of the repeats. Processor seconds are those of the program and its host together, which starts with it.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
CLASSES = """
import evenkeel_moe as ek


class ServerHooks(ek.Method):
    def initialize(self, server):
        return super().initialize(server)

    def broadcast(self, state, client, round):
        for factors in state.adapters.values():
            assert factors.a.size and factors.b.size
        return super().broadcast(state, client, round)

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for site, factors in new.adapters.items():
            for name, theta in factors.items():
                new.memory[f"{site}.{name}"] = theta - getattr(state.adapters[site], name)
        return new


class ClientHook(ek.Method):
    def edit_gradients(self, step):
        for gradients in step.gradients.values():
            for _, gradient in gradients.items():
                gradient *= 1
"""
LEAST_SCORES = ("evaluate.every=0", "evaluate.tasks=['builtin:facts']", "evaluate.limit=1", "evaluate.budgets=[1.0]",
                "evaluate.as_exported=false")
ARMS = {"fedit in C++": None, "server hooks": "ServerHooks", "edit_gradients": "ClientHook"}


def timed(words):
    """Returns the wall and the processor seconds of a command with its children."""
    start = time.monotonic()
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL,
                               env={**os.environ, "EVENKEEL_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"{words}: {status}"
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime


def run(folder, arm, options):
    out = folder / f"run-{time.monotonic_ns()}"
    named = ["--method", f"{folder / 'hooks.py'}:{ARMS[arm]}"] if ARMS[arm] else ["--set", "method.name=fedit"]
    words = [PROGRAM, "train", ROOT / "configs/demo.toml", "--quiet", "--out", out, *named, "--set", f"data.limit={options.rows}",
             "--set", f"train.rounds={options.rounds}", *(word for setting in LEAST_SCORES for word in ("--set", setting))]
    wall, processor = timed(words)
    steps = sum(client["steps"] for line in (out / "rounds.jsonl").open() for client in json.loads(line)["clients"])
    return {"wall": wall, "processor": processor, "steps": steps, "adapter": (out / "adapter/adapter_model.safetensors").read_bytes()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1600)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "hooks.py").write_text(CLASSES)
        runs = {arm: [] for arm in ARMS}
        for _ in range(options.repeats):
            for arm in ARMS:
                runs[arm].append(run(folder, arm, options))
    assert len({one["adapter"] for of_arm in runs.values() for one in of_arm}) == 1, "the adapters differ"
    record = {"rows": options.rows, "rounds": options.rounds, "repeats": options.repeats, "arms": {}}
    plain = {key: min(one[key] for one in runs["fedit in C++"]) for key in ("wall", "processor")}
    for arm, of_arm in runs.items():
        steps = of_arm[0]["steps"]
        least = {key: min(one[key] for one in of_arm) for key in plain}
        record["arms"][arm] = {"steps": steps, **{f"{key}_s": round(least[key], 3) for key in least},
                               **{f"{key}_more": round(least[key] / plain[key] - 1, 4) for key in least},
                               "processor_ms_per_step": round(1e3 * least["processor"] / steps, 3)}
        print(f"{arm:16}", json.dumps(record["arms"][arm]))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
