#!/usr/bin/env python3
"""Fills the tables of study pages from docs/studies/values: means, paired differences with half of the 95 % interval, Holm's p.

    .venv-v4/bin/python tools/study_tables.py docs/studies/0007-changed-facts.md docs/results.md

A table needs its comment, its heads and the first cell of each row; tests/parity/test_study_pages.py has the format, computes what is
written here, and checks it. A cell keeps its number of digits; an empty one gets one digit, three for p and two for log-likelihoods.
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/parity"))
import test_study_pages as pages  # noqa: E402

import numpy as np  # noqa: E402


def sample(text, measure):
    """Returns a number with the digits that a cell shall have: its own, or those of a new cell."""
    number = text.split(" +- ")[0]
    return number if number.partition(".")[2].isdigit() else "0.00" if measure == "log_likelihood" else "0.0"


def mean_cell(values, like):
    return pages.printed(np.mean(list(values.values())), like)


def fill_table(comment, table):
    """Fills a table of one endpoint, whose comment names the reference."""
    file, settings = re.fullmatch(r"values/(\S+)\.csv (.*)", comment, re.S).groups()
    wanted = dict(setting.split("=") for setting in settings.split())
    scores, reference = pages.scores(file), wanted["reference"]
    heads_line, rule, *lines = table.splitlines()
    heads, rows = pages.cells(heads_line), [pages.cells(line) for line in lines]
    values = {row[0]: pages.of_seeds(scores, wanted, row[0]) for row in rows}
    others = [row[0] for row in rows if row[0] != reference]
    differences = {arm: pages.paired(values[arm], pages.of_seeds(scores, wanted, reference)) for arm in others}
    corrected = dict(zip(others, pages.p_values(differences.values(), wanted.get("margin"))))
    made = [heads_line, rule]
    for line, row in zip(lines, rows):
        arm, cells = row[0], [line.split("|")[1].strip()]
        for head, text in zip(heads[1:], row[1:]):
            like = sample(text, wanted["measure"])
            if head == "mean":
                cells.append(mean_cell(values[arm], like))
            elif arm == reference:
                cells.append("")
            elif head == "p":
                cells.append(pages.p_cell(corrected[arm]))
            else:
                cells.append(pages.difference_cell(differences[arm], like))
        made.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(made) + "\n"


def fill_overview(columns, table):
    """Fills a table of several endpoints: means in the first row, differences to it in the others."""
    heads, rule, *rows = table.splitlines()
    endpoints, made = [column.split() for column in columns.split(";")], []
    for row in rows:
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        for place, endpoint in enumerate(endpoints, 1):
            values, like = pages.of_row(row, endpoint), sample(cells[place], endpoint[1])
            if row is rows[0]:
                cells[place] = mean_cell(values, like)
            elif values is None:
                cells[place] = "-"
            else:
                cells[place] = pages.difference_cell(pages.paired(values, pages.of_row(rows[0], endpoint)), like)
        made.append("| " + " | ".join(cells) + " |")
    return "\n".join([heads, rule, *made]) + "\n"


def fill(text):
    def of_one(found):
        return f"<!-- {found[1]} -->\n{found[2]}" + fill_table(found[1], found[3])

    def of_several(found):
        return f"<!-- columns: {found[1]} -->\n{found[2]}" + fill_overview(found[1], found[3])

    text = re.sub(r"<!-- (values/[^>]*?) -->\n(\n?)((?:\|.*\n)+)", of_one, text)
    return re.sub(r"<!-- columns: ([^>]*?) -->\n(\n?)((?:\|.*\n)+)", of_several, text)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[1:]:
        page = pathlib.Path(name)
        page.write_text(fill(page.read_text()))


if __name__ == "__main__":
    main()
