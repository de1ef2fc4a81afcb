"""Tests that partition.json and predictions name rows by their number in the file, as a data frame of the file counts."""

import collections
import json
import random

import pytest

from hostile import refused
from tiny import CONFIG, lines, settings, succeed

KINDS = ("lake", "moor", "reef")


def question(i):
    return f"Where does animal {i} live?"


def rows_of(count, first=0):
    """Returns rows whose kinds are mixed in the file."""
    kinds = [KINDS[i % 3] for i in range(count)]
    random.Random(7).shuffle(kinds)
    return [{"prompt": question(first + i), "completion": kinds[i], "site": kinds[i]} for i in range(count)]


def write(file, rows, blank_lines=False):
    end = "\n\n" if blank_lines else "\n"
    file.write_text(json.dumps(rows) if file.suffix == ".json" else "".join(json.dumps(row) + end for row in rows))
    return file


def train(model, out, files, **changes):
    return succeed("train", CONFIG, "--out", out, *settings(**{
        "model__path": model, "train__rounds": 1, "method__name": "fedit", "clients__count": 3, "clients__budgets": "[1.0,1.0,1.0]",
        "clients__participation": "1.0", "data__task": "files", "data__limit": 0, "data__files__train": json.dumps([str(file) for file in files]),
        "data__files__label": "site", "data__files__score": "choice", "data__files__options": json.dumps(KINDS), "evaluate__budgets": "[1.0]",
        "evaluate__limit": 0, "data__partition": '{ kind = "dirichlet", alpha = 0.01 }', **changes}))


def partition_of(run):
    return json.loads((run / "partition.json").read_text())


@pytest.mark.parametrize("name, blank_lines", [("rows.jsonl", False), ("rows.jsonl", True), ("rows.json", False)])
def test_a_frame_of_the_file_shows_the_skew_of_every_client(tiny_model, tmp_path, name, blank_lines):
    pandas = pytest.importorskip("pandas")
    file = write(tmp_path / name, rows_of(36), blank_lines)
    train(tiny_model, tmp_path / "run", [file])
    partition = partition_of(tmp_path / "run")
    df = pandas.read_json(partition["files"][0], lines=name == "rows.jsonl")
    assert partition["files"] == [str(file)] and "file_of_client_rows" not in partition
    counts = [df.iloc[numbers]["site"].value_counts() for numbers in partition["clients"]]
    assert sorted(len(numbers) for numbers in partition["clients"]) == [10, 11, 11]
    assert sum(count.max() for count in counts) >= 26, counts  # of 32; 11 or 12 if the numbers are of other rows
    everything = sum(partition["clients"], partition["held_out"])
    assert sorted(everything) == list(range(36)) and len(partition["held_out"]) == 4


def test_rows_of_several_files_are_named_with_their_file(tiny_model, tmp_path):
    files = [write(tmp_path / "north.jsonl", rows_of(15)), write(tmp_path / "south.json", rows_of(12, first=40))]
    train(tiny_model, tmp_path / "run", files, data__partition='{ kind = "iid" }')
    partition = partition_of(tmp_path / "run")
    named = [list(zip(*pair)) for pair in zip(partition["file_of_client_rows"], partition["clients"])]
    held_out = list(zip(partition["file_of_held_out"], partition["held_out"]))
    assert partition["files"] == [str(file) for file in files]
    assert sorted(sum(named, held_out)) == [(0, i) for i in range(15)] + [(1, i) for i in range(12)]


def test_a_limit_leaves_numbers_of_the_file(tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", rows_of(36))
    train(tiny_model, tmp_path / "run", [file], data__limit=9)
    partition = partition_of(tmp_path / "run")
    numbers = sum(partition["clients"], [])
    assert len(set(numbers)) == 9 and max(numbers) > 9 and len(partition["held_out"]) == 4 and not set(numbers) & set(partition["held_out"])


def test_a_row_that_cannot_be_read_keeps_its_number(tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", [*rows_of(5), {"prompt": "no answer"}, *rows_of(5, first=5)])
    train(tiny_model, tmp_path / "run", [file], data__files__strict="false", data__files__held_out=0.2)
    partition = partition_of(tmp_path / "run")
    assert sorted(sum(partition["clients"], partition["held_out"])) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_clients_with_files_of_their_own_have_numbers_of_these(tiny_model, tmp_path):
    files = [write(tmp_path / f"{name}.jsonl", rows_of(count, first=100 * count)) for name, count in (("a", 6), ("b", 8))]
    clients = json.dumps([{"data": str(files[0]), "held_out": 0.0}, {"data": str(files[1]), "held_out": 0.25}]).replace('": ', '" = ')
    train(tiny_model, tmp_path / "run", [], data__files__train="[]", clients__client=clients, clients__count=2, clients__budgets="[1.0,1.0]",
          data__partition='{ kind = "iid" }', data__files__label='""')
    partition = partition_of(tmp_path / "run")
    assert partition["clients"][0] == list(range(6)) and partition["file_of_client_rows"] == [[0] * 6, [1] * 6]
    assert sorted(partition["clients"][1] + partition["held_out"]) == list(range(8)) and partition["file_of_held_out"] == [1, 1]


def test_generated_rows_are_numbered_in_their_set(small_run):
    partition = partition_of(small_run)
    assert partition["files"] == partition["held_out"] == [] and sorted(sum(partition["clients"], [])) == list(range(30))
    assert "file_of_client_rows" not in partition


@pytest.fixture(scope="module")
def scored(tiny_model, tmp_path_factory):
    """Returns a run of one file, the file, and its rows."""
    folder = tmp_path_factory.mktemp("scored")
    rows = rows_of(30)
    file = write(folder / "rows.jsonl", rows)
    train(tiny_model, folder / "run", [file], data__files__held_out=0.3)
    return folder / "run", file, rows


def test_predictions_name_the_row_of_the_file_and_its_question_on_request(scored, tmp_path):
    run, file, rows = scored
    succeed("evaluate", "--run", run, "--predictions", tmp_path / "plain.jsonl")
    succeed("evaluate", "--run", run, "--predictions", tmp_path / "asked.jsonl", "--questions")
    plain, asked = lines(tmp_path / "plain.jsonl"), lines(tmp_path / "asked.jsonl")
    assert sorted(one["row"] for one in plain) == sorted(partition_of(run)["held_out"]) and len(plain) == 9
    assert all("question" not in one and one["file"] == str(file) and one["gold"] == rows[one["row"]]["completion"] for one in plain)
    assert [one["question"] for one in asked] == [rows[one["row"]]["prompt"] for one in asked]
    assert [{**one, "question": None} for one in asked] == [{**one, "question": None} for one in plain]


def test_predictions_of_other_rows_name_these(scored, tiny_model, tmp_path):
    run, _, _ = scored
    other = [{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question(i)},
                           {"role": "assistant", "content": KINDS[i % 3]}]} for i in range(40, 47)]
    file = write(tmp_path / "other.json", other)
    flags = ["--tasks", "files", "--data", file, "--score", "choice", "--options", ",".join(KINDS), "--limit", 3, "--questions"]
    for words in (["--run", run], ["--model", tiny_model]):
        succeed("evaluate", *words, *flags, "--budget", 1, "--predictions", tmp_path / "answers.jsonl")
        answers = lines(tmp_path / "answers.jsonl")
        assert len(answers) == 3 and all(one["file"] == str(file) for one in answers)
        assert [one["question"] for one in answers] == [f"Be brief.\n\n{question(40 + one['row'])}" for one in answers]


def test_likelihoods_and_rank_evaluation_modes_are_named_too(tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", rows_of(12))
    train(tiny_model, tmp_path / "run", [file], method__name="flexlora", data__files__score="nll", data__files__options="[]",
          data__partition='{ kind = "iid" }', data__files__held_out=0.25)
    succeed("evaluate", "--run", tmp_path / "run", "--predictions", tmp_path / "answers.jsonl", "--questions")
    counts = collections.Counter(one["rank_eval_mode"] for one in lines(tmp_path / "answers.jsonl"))
    assert counts == {"a": 3, "b": 3}
    held_out = partition_of(tmp_path / "run")["held_out"]
    assert {(one["row"], one["question"]) for one in lines(tmp_path / "answers.jsonl")} == {(i, question(i)) for i in held_out}


def test_the_text_of_questions_goes_with_predictions(tiny_model):
    refused("evaluate", "--model", tiny_model, "--tasks", "builtin:facts", "--questions", says=["--questions goes with --predictions"])
