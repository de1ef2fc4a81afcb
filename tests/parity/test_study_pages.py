"""Computes the tables of docs/studies and docs/results.md with scipy, from the scores of single runs in docs/studies/values.

Such a table has a comment before it, which names the scores, what is compared, and the arm that the others are compared with:

    <!-- values/large-drawn.csv measure=accuracy task=animals budget=0.125 reference=none -->

Its first column is the arm, `ARM, a` if the arm is scored in rank evaluation mode a. Others are known by their heads: `mean`; `minus
ARM`, the mean of differences paired by seed and half of its 95 % t interval; `p`, Holm's correction over the rows of the table. The
t-test is two-sided, or, if the comment has a `margin`, asks whether the difference is above it. Differences that are equal in all seeds
and not 0 have no interval, `-` for p, and no part in the correction.

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


def are_alike(values):
    """Returns True for values that are equal up to rounding and not 0, which no t-test can judge (src/comparison/statistics.h)."""
    return values.any() and values.std(ddof=1) <= 1e-10 * abs(values.mean())


def p_value(differences, margin):
    """Returns the p of the t-test: 1 for differences of 0, None for others that are alike."""
    beyond = differences - float(margin or 0)
    if not beyond.any():
        return 1.0
    if are_alike(beyond):
        return None
    return scipy_stats.ttest_1samp(beyond, 0, alternative="greater" if margin else "two-sided").pvalue


def p_values(differences, margin):
    """Returns the p of each arm after Holm's correction, None for an arm that has none."""
    single = [p_value(of_arm, margin) for of_arm in differences]
    tested = [p for p in single if p is not None]
    corrected = iter(multipletests(tested, method="holm")[1] if tested else [])
    return [None if p is None else next(corrected) for p in single]


def p_cell(p):
    """Returns a new cell with a p."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def is_p(text, p):
    if p is None or text in ("-", "< 0.001"):
        return text == p_cell(p)
    return float(text) == pytest.approx(p, abs=0.00051)


def difference_cell(differences, like):
    """Returns the mean of paired differences and half of its 95 % interval, with as many digits as `like`."""
    mean = printed(differences.mean(), like)
    if are_alike(differences):
        return mean
    low, high = scipy_stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    return f"{mean} +- {printed((high - low) / 2, like)}"


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
        text = row[next(i for i, head in enumerate(heads) if head.startswith("minus"))]
        assert text == difference_cell(difference, text.split(" +- ")[0]), row
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
                assert text == difference_cell(paired(values, reference), text.split(" +- ")[0]), row


def test_differences_that_are_equal_in_all_seeds_have_no_interval_no_p_and_no_part_in_the_correction():
    one, other, alike = np.array([0.3, 0.1, 0.4]), np.array([0.2, -0.1, 0.05]), np.array([0.77 - 0.75, 0.02, 0.80 - 0.78])
    for margin in (None, -0.5):
        with_it, without = p_values([one, alike, other], margin), p_values([one, other], margin)
        assert with_it == [without[0], None, without[1]] and p_values([alike], margin) == [None]
    assert p_values([np.zeros(3)], None) == [1]
    assert difference_cell(alike, "0.00") == "0.02" and difference_cell(np.zeros(3), "0.0") == "0.0 +- 0.0"
    assert p_cell(None) == "-" and is_p("-", None) and not is_p("-", 0.3) and not is_p("< 0.001", None)


def test_there_are_tables():
    assert len(TABLES) >= 4 and OVERVIEWS
