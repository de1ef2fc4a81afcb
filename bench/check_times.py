#!/usr/bin/env python3
"""Compares the simulated seconds of a run with its real seconds.

    build/evenkeel doctor --config run.toml --client-profile here.toml      (on each kind of machine)
    cat run.toml here.toml > timed.toml
    build/evenkeel train timed.toml --set 'clients.profiles={ values = ["here"] }' --out runs/timed
    bench/check_times.py runs/timed

Prints the predicted (`simulated` in the records) and the real (`seconds`) training time of every client over all
rounds. With --together, it also prints the time of every round from its first task to its aggregate (`seconds.round`).
That is for runs in which each client had its own machine. The exit code is 1 if a prediction exceeds the tolerance.
"""
import argparse
import json
import pathlib
import sys


def rounds_of(run, skip):
    lines = (pathlib.Path(run) / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines][skip:]
    if not rounds or not all("simulated" in record for record in rounds):
        sys.exit(f"{run}: has no round with simulated time: clients.profiles says which machines clients run on")
    return rounds


def training(rounds):
    """Returns [(name, predicted, real)] in seconds per client over all rounds."""
    sums = {}
    for record in rounds:
        for client in record["clients"]:
            name = f"client {client['id']}, {client['simulated']['device']}, K = {client['top_k']}"
            predicted, real = sums.get(name, (0, 0))
            sums[name] = predicted + client["simulated"]["train"], real + client["seconds"]
    return [(name, *both) for name, both in sorted(sums.items())]


def whole(rounds):
    return [(f"round {record['round']}", record["simulated"]["took"], record["seconds"]["round"]) for record in rounds]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--together", action="store_true", help="clients had machines of their own: compare rounds too")
    parser.add_argument("--skip", type=int, default=0, help="rounds at the beginning that do not count")
    parser.add_argument("--tolerance", type=float, default=0.15, help="largest share that a prediction may be off")
    arguments = parser.parse_args()
    rounds = rounds_of(arguments.run, arguments.skip)
    compared = training(rounds) + (whole(rounds) if arguments.together else [])
    print(f"{'':32} predicted, s    real, s      off")
    for name, predicted, real in compared:
        print(f"{name:32} {predicted:12.3f} {real:10.3f} {100 * (predicted / real - 1):+7.1f} %")
    name, predicted, real = max(compared, key=lambda one: abs(one[1] / one[2] - 1))
    off = abs(predicted / real - 1)
    print(f"largest error: {100 * off:.1f} %, {name}; allowed: {100 * arguments.tolerance:.0f} %")
    return off > arguments.tolerance


if __name__ == "__main__":
    sys.exit(main())
