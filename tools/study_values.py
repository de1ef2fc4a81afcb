#!/usr/bin/env python3
"""Prints the scores of the last round of studies, one line per arm, seed, budget and task, for docs/studies/values.

    python3 tools/study_values.py runs/low-budgets-drawn runs/slimmable > docs/studies/values/large-drawn.csv

The studies have other names of arms each. Accuracies are shares of rows, log-likelihoods nats per row.
tests/parity/test_study_pages.py computes the tables of docs/studies from these files, with scipy.
"""

import csv
import os
import pathlib
import subprocess
import sys

PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(pathlib.Path(__file__).resolve().parents[1] / "build/evenkeel"))
KEYS = ["arm", "seed", "rank_eval_mode", "budget", "task"]
MEASURES = ["accuracy", "accuracy_likelihood", "log_likelihood"]


def scores(lines):
    """Returns {values of KEYS: {measure: value}} of the lines of a report."""
    kept = {}
    for line in csv.DictReader(lines):
        if line["served_by"] == "run" and line["measure"] in MEASURES:
            key = tuple(line[name] for name in KEYS[:-1]) + (line["task"].split(":")[-1],)
            kept.setdefault(key, {})[line["measure"]] = f"{float(line['value']):.6g}"
    return kept


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(KEYS + MEASURES)
    for study in sys.argv[1:]:
        report = subprocess.run([PROGRAM, "report", "--format", "csv", study], stdout=subprocess.PIPE, text=True)
        if report.returncode != 0:
            sys.exit(report.returncode)
        for key, values in scores(report.stdout.splitlines()).items():
            writer.writerow([*key, *(values.get(measure, "") for measure in MEASURES)])


if __name__ == "__main__":
    main()
