#!/usr/bin/env python3
"""Compares two Google Benchmark JSON files of the same machine, before and after a change.

    build/router_bench --benchmark_repetitions=5 --benchmark_out=before.json
    (change, build)
    build/router_bench --benchmark_repetitions=5 --benchmark_out=after.json
    bench/compare.py before.json after.json

Compares the medians of the repetitions in real time. A ratio below 1 is faster. Differences smaller than the spread of
the repetitions are marked as noise.
"""
import argparse
import json
import statistics
import sys

UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds_by_name(path):
    with open(path, encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    seconds = {}
    for entry in runs:
        if entry.get("run_type") == "iteration":
            seconds.setdefault(entry["run_name"], []).append(entry["real_time"] * UNITS[entry["time_unit"]])
    return seconds


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    arguments = parser.parse_args()
    before, after = seconds_by_name(arguments.before), seconds_by_name(arguments.after)
    shared = [name for name in before if name in after]
    if not shared:
        sys.exit(f"no benchmark is in both {arguments.before} and {arguments.after}")
    width = max(map(len, shared))
    for name in shared:
        old, new = statistics.median(before[name]), statistics.median(after[name])
        noise = max(spread(before[name]), spread(after[name]))
        mark = "  (noise)" if abs(new / old - 1) <= noise else ""
        print(f"{name:{width}}  {old * 1e3:10.4f} ms  {new * 1e3:10.4f} ms  x{new / old:.3f}{mark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
