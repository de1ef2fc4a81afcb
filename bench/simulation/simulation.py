#!/usr/bin/env python3
"""Measures what simulating many clients costs beside their steps: evenkeel, pfl-research and Flower.

All train the same checkpoint with LoRA on the same rows, 16 per user, in steps of four, one epoch, one thread. The
record has, per system: seconds per client and round; the overhead, which is the time of a round divided by that of its
steps alone (measured before and after, in one loop without a federation), minus 1; the peak memory of all processes at
several numbers of users; and two workers next to one. Processor time stands next to wall time: where other programs use
the machine, wall time is too long, and processor time is nearly right. The first round of every run is not counted.

    tools/setup simulation                                       installs the peers into .venv-simulation
    taskset -c 0 python3 bench/simulation/simulation.py --out bench/records/DATE-simulation.json
    python3 bench/simulation/simulation.py --systems evenkeel --clients 10 --rounds 1

A peer that is not installed is left out with a line that says so. EVENKEEL_PROGRAM names another program, which also
makes the checkpoint; EVENKEEL_SIMULATION_TOKENS another length of the rows than 96 tokens.
"""
import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import tempfile

import evenkeel_run
import peers
import task

SYSTEMS = {"evenkeel": evenkeel_run, "pfl": peers.Peer("pfl"), "flower": peers.Peer("flower")}
DRAWN = 100            # users per round
DRAWN_FOR_MEMORY = 10  # so that the smallest population has enough
DRAWN_FOR_WORKERS = 20


def mean(runs, key):
    return statistics.mean(run[key] for run in runs)


def time_of(system, folder, clients, rounds):
    """Measures rounds between two measurements of their steps alone."""
    drawn = min(DRAWN, clients)
    task.make_rows(folder, drawn)
    task.make_rows(folder, clients)
    before = system.plain(folder, drawn)
    run = system.federated(folder, clients, drawn, rounds)
    alone = [before, system.plain(folder, drawn)]
    seconds = {key: mean(run["rounds"], key) for key in ("wall_s", "cpu_s")}
    return {"clients": clients, "drawn": drawn, "s_per_round": seconds["wall_s"], "s_per_client": seconds["wall_s"] / drawn,
            "cpu_s_per_client": seconds["cpu_s"] / drawn, "ms_per_step": 1000 * mean(alone, "wall_s") / alone[0]["steps"],
            "cpu_ms_per_step": 1000 * mean(alone, "cpu_s") / alone[0]["steps"],
            "overhead": seconds["wall_s"] / mean(alone, "wall_s") - 1, "overhead_cpu": seconds["cpu_s"] / mean(alone, "cpu_s") - 1,
            "alone": alone, "run": run}


def memory_of(system, folder, populations):
    """Measures the peak of all processes, with equally many users per round at every population."""
    peaks = []
    for clients in populations:
        task.make_rows(folder, clients)
        drawn = min(DRAWN_FOR_MEMORY, clients)
        run = system.federated(folder, clients, drawn, 1, memory=True)
        peaks.append({"clients": clients, "drawn": drawn, "peak_pss_mib": run["peak_pss_mib"], "startup_s": run["startup_s"]})
    return peaks


def workers_of(system, folder, clients):
    """Measures a round with one worker and with two."""
    task.make_rows(folder, clients)
    drawn = min(DRAWN_FOR_WORKERS, clients)
    results = []
    for workers in (1, 2):
        run = system.federated(folder, clients, drawn, 1, workers=workers)
        results.append({"workers": workers, "drawn": drawn, **run["rounds"][0]})
    return results


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def machine():
    return {"processor": processor(), "cores": os.cpu_count()}


PARTS = {
    "time": lambda system, folder, chosen: time_of(system, folder, max(chosen.clients), chosen.rounds),
    "memory": lambda system, folder, chosen: memory_of(system, folder, sorted(chosen.clients)),
    "workers": lambda system, folder, chosen: workers_of(system, folder, max(chosen.clients)),
}


def opened(chosen):
    """Returns the record that --out holds already, or a new one."""
    measured = {"model": task.MODEL, "rank": task.RANK, "rows": task.ROWS, "tokens": task.LENGTH, "batch": task.BATCH, "threads": 1}
    if not (chosen.out and chosen.out.exists()):
        return {"date": datetime.date.today().isoformat(), "machine": machine(), "task": measured, "load": [], "simulation": {}}
    record = json.loads(chosen.out.read_text())
    if record["task"] != measured:
        sys.exit(f"{chosen.out} is of another task: {record['task']}")
    return record


def measure(record, name, folder, chosen):
    """Adds the parts of a system to the record, and the machine's load before each and the cores that it may use."""
    system = SYSTEMS[name]
    into = record["simulation"].setdefault(name, {"versions": system.versions()})
    for part in chosen.parts:
        print(f"{name}: {part}", file=sys.stderr)
        record["load"].append({"system": name, "part": part, "one_minute": os.getloadavg()[0],
                               "cores": sorted(os.sched_getaffinity(0))})
        into[part] = PARTS[part](system, folder, chosen)
        save(record, chosen)


def save(record, chosen):
    """Writes what is measured so far, where there is a file to write."""
    if chosen.out:
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")


def fill(record, folder, chosen):
    task.make_model(folder)
    task.make_rows(folder, 1)
    for name in chosen.systems:
        if why := SYSTEMS[name].missing():
            print(f"{name} is left out: {why}", file=sys.stderr)
        else:
            measure(record, name, folder, chosen)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--clients", nargs="+", type=int, default=[10, 100, 1000], help="populations; rounds are timed at the largest")
    parser.add_argument("--rounds", type=int, default=1, help="that are counted")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=pathlib.Path, help="record to write, or to add to (default: standard output)")
    chosen = parser.parse_args()
    if why := evenkeel_run.missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder:
        record = opened(chosen)
        fill(record, pathlib.Path(folder), chosen)
    if not chosen.out:
        print(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
