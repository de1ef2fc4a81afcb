"""Writes the commonsense sets as questions that are answered with the text of an option: a small model tells little when it
is asked for "answer1", and more when the texts of the options are ranked by their likelihood.

    python3 tools/cloze_rows.py COMMONSENSE OUT [--rows 400]

COMMONSENSE is the folder of these sets (docs/data.md). OUT/train-SET.jsonl are the rows of the training mixture by the set
whose form they have, OUT/SET.jsonl test rows in an order drawn from a fixed seed. Rows whose options are empty or equal are
left out, and counted. The files are for the task `files` (docs/your-data.md).
"""

import argparse
import json
import pathlib
import random
import re

# Folder of the test rows, the word before the number of an option, and how a question is asked. The mixture has no rows of
# other sets; "answer1" is the form of three sets of science questions, which are not told apart.
SETS = {"arc": ("ARC-Easy", "Answer", "Question: {}\nAnswer:"), "boolq": ("boolq", None, "Question: {}\nAnswer:"),
        "piqa": ("piqa", "Solution", "Question: {}\nAnswer:"), "winogrande": ("winogrande", "Option", "{}\nThe blank is")}
SEED = 42


def set_of(row):
    """Returns the set that a training row has the form of: the mixture does not say where a row is from."""
    by_word = {"solution": "piqa", "option": "winogrande", "tru": "boolq", "fals": "boolq"}
    return by_word.get(row["answer"][:-1], "arc")


def parts(name, row):
    """Returns the question, the texts of the options, and the index of the right one."""
    text, (_, word, _) = row["instruction"], SETS[name]
    if word is None:
        return re.search(r"question: (.*?)\n", text).group(1), ["yes", "no"], ["true", "false"].index(row["answer"])
    head, tail = text.split(f"\n\n{word}1:", 1)
    options = re.split(rf"\s*{word}\d: ", tail.split("Answer format:")[0])
    return head.split(": ", 1)[1], [option.strip() for option in options], int(row["answer"][-1]) - 1


def cloze(name, row):
    """Returns a row of the task `files`, or None where an option is empty or comes twice, or the form is another."""
    try:
        question, options, right = parts(name, row)
        answer = options[right]
    except (AttributeError, IndexError, ValueError):
        return None
    if len(set(options)) < len(options) or not all(options):
        return None
    return {"prompt": SETS[name][2].format(question.strip()), "completion": " " + answer, "options": options, "answer": answer}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def training_rows(mixture):
    """Returns the rows of each set, and how many were left out."""
    made, left_out = {name: [] for name in SETS}, 0
    for row in mixture:
        name = set_of(row)
        if one := cloze(name, row):
            made[name].append(one)
        else:
            left_out += 1
    return made, left_out


def test_rows(folder, name, count):
    rows = json.loads((folder / SETS[name][0] / "test.json").read_text(encoding="utf-8"))
    random.Random(SEED).shuffle(rows)
    return [one for row in rows if (one := cloze(name, row))][:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("commonsense", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=400, help="test rows of each set (default: %(default)s)")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (mixture,) = given.commonsense.glob("commonsense_*.json")
    made, left_out = training_rows(json.loads(mixture.read_text(encoding="utf-8")))
    for name, rows in made.items():
        tests = test_rows(given.commonsense, name, given.rows)
        write(given.out / f"train-{name}.jsonl", rows)
        write(given.out / f"{name}.jsonl", tests)
        print(f"{name}: {len(rows)} rows to train on, {len(tests)} to test")
    print(f"left out of the mixture: {left_out}")


if __name__ == "__main__":
    main()
