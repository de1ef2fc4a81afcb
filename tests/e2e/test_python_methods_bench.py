"""Tests what the benchmark of methods in Python (bench/python_methods.py) measures."""

import argparse
import sys

from tiny import ROOT, lines

sys.path[:0] = [str(ROOT / "bench")]
import python_methods  # noqa: E402


def test_the_measured_runs_score_one_row(tmp_path):
    made = python_methods.run(tmp_path, "fedit in C++", argparse.Namespace(rows=24, rounds=2))
    run, = tmp_path.iterdir()
    scored = lines(run / "evaluations.jsonl")
    assert [(line["round"], line["rows"]) for line in scored] == [(2, 1)]
    assert made["steps"] == sum(client["steps"] for line in lines(run / "rounds.jsonl") for client in line["clients"])
