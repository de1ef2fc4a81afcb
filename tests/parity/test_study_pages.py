"""Computes the tables of docs/studies and docs/results.md with scipy, from the scores of single runs in docs/studies/values.

Such a table has a comment before it, which names the scores, what is compared, and the arm that the others are compared with:

    <!-- values/large-drawn.csv measure=accuracy task=animals budget=0.125 reference=none -->

Its first column is the arm, `ARM, a` if the arm is scored in rank evaluation mode a. Others are known by their heads: `mean`; `minus
ARM`, the mean of differences paired by seed and half of its 95 % t interval; `p`, Holm's correction over the rows of the table. The
t-test is two-sided, or, if the comment has a `margin`, asks whether the difference is above it.

A table over several endpoints names the scores, measure, task and budget of each of its columns:

    <!-- columns: large-drawn accuracy animals 0.125; smollm2-sparse log_likelihood mean 0.125 -->

Its first row is what the others are compared with, and has means; the others have differences, or `-` where the arm was not run. Arms
are in backticks, with all the names that they have in the scores.
"""

import csv
import functools
import pathlib
import re

import numpy as np
import pytest

scipy_stats = pytest.importorskip("scipy.stats")
multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "results.md", *sorted((DOCS / "studies").glob("*.md"))]


def tables(comment):
    """Returns the tables of all pages whose comment matches, each with the groups of the match before it."""
    pattern = re.compile(f"<!-- {comment} -->\n\n?((?:\\|.*\n)+)")
    return [pytest.param(*found, id=f"{page.name}-{number}")
            for page in PAGES for number, found in enumerate(pattern.findall(page.read_text()))]


TABLES = tables(r"values/(\S+)\.csv ([^>]*?)")
OVERVIEWS = tables("columns: ([^>]*?)")


@functools.cache
def scores(name):
    return list(csv.DictReader((DOCS / "studies/values" / f"{name}.csv").read_text().splitlines()))


def cells(line):
    return [cell.strip().strip("`*") for cell in line.strip().strip("|").split("|")]


def of_seeds(lines, wanted, label):
    """Returns an arm's value by seed: one task's, or the mean over tasks."""
    arm, _, mode = label.partition(", ")
    kept = {}
    for line in lines:
        if (line["arm"], line["rank_eval_mode"]) == (arm.strip("`"), mode) and float(line["budget"]) == float(wanted["budget"]) \
                and wanted["task"] in (line["task"], "mean"):
            kept.setdefault(int(line["seed"]), []).append(float(line[wanted["measure"]]))
    scale = 100 if wanted["measure"].startswith("accuracy") else 1
    return {seed: scale * np.mean(values) for seed, values in kept.items()}


def paired(values, reference):
    assert values.keys() == reference.keys(), "each pair has two runs"
    return np.array([values[seed] - reference[seed] for seed in sorted(values)])


def printed(number, text):
    """Returns a number with as many digits as a cell has, without the sign of a negative zero."""
    digits = len(text.partition(".")[2])
    return f"{round(number, digits) + 0.0:.{digits}f}"


def p_values(differences, margin):
    """Returns the p of each arm after Holm's correction."""
    tests = [scipy_stats.ttest_1samp(d, float(margin or 0), alternative="greater" if margin else "two-sided") for d in differences]
    return multipletests([test.pvalue for test in tests], method="holm")[1]


def is_p(text, p):
    return p < 0.001 if text == "< 0.001" else float(text) == pytest.approx(p, abs=0.00051)


def assert_difference(text, differences, row):
    """Compares a cell with the mean of paired differences and half of its 95 % interval."""
    low, high = scipy_stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    centre, half = text.split(" +- ")
    assert centre == printed(differences.mean(), centre) and half == printed((high - low) / 2, half), row


@pytest.mark.parametrize("file, settings, table", TABLES)
def test_a_table_is_what_scipy_gives(file, settings, table):
    wanted = dict(setting.split("=") for setting in settings.split())
    lines = scores(file)
    heads, _, *rows = [cells(line) for line in table.splitlines()]
    reference = of_seeds(lines, wanted, wanted["reference"])
    others = [row for row in rows if row[0] != wanted["reference"]]
    differences = [paired(of_seeds(lines, wanted, row[0]), reference) for row in others]
    corrected = p_values(differences, wanted.get("margin"))
    for row in rows:
        text = row[heads.index("mean")]
        assert text == printed(np.mean(list(of_seeds(lines, wanted, row[0]).values())), text), row
    for row, difference, p in zip(others, differences, corrected, strict=True):
        assert_difference(row[next(i for i, head in enumerate(heads) if head.startswith("minus"))], difference, row)
        assert "p" not in heads or is_p(row[heads.index("p")], p), row


def of_row(row, endpoint):
    """Returns by seed the values of the one arm that a row names and the scores have, or None if they have none."""
    file, measure, task, budget = endpoint
    names = set(re.findall("`(.+?)`", row)) & {line["arm"] for line in scores(file)}
    assert len(names) <= 1, row
    return of_seeds(scores(file), {"measure": measure, "task": task, "budget": budget}, names.pop()) if names else None


@pytest.mark.parametrize("columns, table", OVERVIEWS)
def test_a_table_over_endpoints_is_what_scipy_gives(columns, table):
    _, _, first, *rows = table.splitlines()
    for place, column in enumerate(columns.split(";"), 1):
        endpoint = column.split()
        reference, text = of_row(first, endpoint), cells(first)[place]
        assert text == printed(np.mean(list(reference.values())), text), first
        for row in rows:
            values, text = of_row(row, endpoint), cells(row)[place]
            if values is None:
                assert text == "-", row
            else:
                assert_difference(text, paired(values, reference), row)


def test_there_are_tables():
    assert len(TABLES) >= 4 and OVERVIEWS
