"""Tests user files: from rows to a trained and scored adapter, and errors about files that cannot be read."""

import json
import math
import re

import pytest

from hostile import refused
from tiny import CONFIG, evenkeel, lines, one_line, settings, succeed, without_seconds

SCORES = {"alpaca": "f1", "talk": "exact", "choice": "choice", "notes": "nll"}


def write_lines(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return file


def question(i):
    return f"Which animal is number {i}?"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Writes a file of each format, and one format in two files."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "alpaca.json").write_text(json.dumps([{"instruction": question(i), "input": "a list", "output": f"the fox {i}"} for i in range(20)]))
    write_lines(folder / "talk.jsonl", [{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question(i)},
                                                      {"role": "assistant", "content": f"Fox {i}"}]} for i in range(12)])
    write_lines(folder / "choice.jsonl", [{"prompt": question(i), "completion": "fox" if i % 3 else "owl"} for i in range(10)])
    for part in "ab":
        write_lines(folder / f"notes/{part}.jsonl", [{"prompt": f"{part}: {question(i)}", "completion": "No animal."} for i in range(8)])
    return folder


@pytest.fixture(scope="session")
def config(folder):
    file = folder / "run.toml"
    file.write_text(CONFIG.read_text().replace('task = "builtin"\nlimit = 90', 'task = ["files", "builtin"]\nlimit = 60') + f"""
tasks = ["files", "builtin:tools"]

[data.files]
held_out = 0.25

[data.files.alpaca]
train = ["{folder}/alpaca.json"]

[data.files.talk]
train = ["{folder}/talk.jsonl"]
score = "exact"

[data.files.choice]
test = ["{folder}/choice.jsonl"]
score = "choice"
options = ["fox", "owl"]

[data.files.notes]
train = ["{folder}/notes/*.jsonl"]
score = "nll"
""")
    return file


@pytest.fixture(scope="session")
def trained(tiny_model, config, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "files"
    done = succeed("train", config, "--out", out, *settings(model__path=tiny_model, train__rounds=1, method__name="fedit"))
    return out, done


def test_a_mixture_of_files_and_a_built_in_task_is_trained_and_scored(trained, folder):
    out, done = trained
    scores = {one["task"]: one for one in lines(out / "evaluations.jsonl") if one["budget"] == 1}
    assert sorted(scores) == ["builtin:tools", "files:alpaca", "files:choice", "files:notes", "files:talk"]
    for name, key in {"alpaca": "f1", "talk": "exact_match", "choice": "accuracy", "notes": "nll"}.items():
        assert key in scores[f"files:{name}"]
    assert scores["files:choice"]["chance"] == 0.5
    notes = scores["files:notes"]
    assert notes["perplexity"] == pytest.approx(math.exp(notes["nll"])) and notes["answer_tokens"] > 0
    manifest = json.loads((out / "manifest.json").read_text())
    named = {entry["path"] for entry in manifest["files"]}
    assert {str(folder / name) for name in ("alpaca.json", "talk.jsonl", "choice.jsonl", "notes/a.jsonl", "notes/b.jsonl")} <= named
    assert sum(map(len, json.loads((out / "partition.json").read_text())["clients"])) == 60
    for said in ("20 rows of", "(alpaca)", "15 of them to train on", "(messages)", "8 rows of", "(prompt_completion)"):
        assert said in done.stderr, done.stderr
    assert "nll" in done.stdout and "acc" in done.stdout


def test_held_out_rows_are_scored_again_to_the_same_scores(trained):
    out, _ = trained
    again = [json.loads(line) for line in succeed("evaluate", "--run", out, "--tasks", "files", "--budget", 1, "--json").stdout.splitlines()]
    recorded = {one["task"]: one for one in lines(out / "evaluations.jsonl") if one["budget"] == 1}
    assert len(again) == 4
    for score in again:
        assert {key: recorded[score["task"]][key] for key in score if key != "seconds"} == {key: score[key] for key in score if key != "seconds"}


def test_a_resumed_run_ignores_files_that_were_added_later(tiny_model, config, folder, tmp_path):
    notes = tmp_path / "rows/notes"
    for part in "ab":
        write_lines(notes / f"{part}.jsonl", [{"prompt": f"{part} {i}", "completion": "No."} for i in range(8)])
    arguments = ["train", CONFIG, "--out", tmp_path / "run", *settings(
        model__path=tiny_model, train__rounds=1, method__name="fedit", data__task="files", data__files__score="nll",
        data__files__train=f"['{notes}/*.jsonl']")]
    succeed(*arguments)
    write_lines(notes / "c.jsonl", ["{}\n"])
    succeed(*arguments, "--resume")
    with open(notes / "a.jsonl", "a") as file:
        file.write("\n")
    one_line(evenkeel(*arguments, "--resume"), "a.jsonl", "has changed since the run was made")


@pytest.mark.parametrize("name, score", SCORES.items())
def test_a_model_without_a_run_is_scored_on_a_file(tiny_model, folder, tmp_path, name, score):
    data = folder / {"alpaca": "alpaca.json", "notes": "notes/*.jsonl"}.get(name, f"{name}.jsonl")
    options = ["--options", "fox,owl"] if score == "choice" else []
    predictions = tmp_path / "predictions.jsonl"
    done = succeed("evaluate", "--model", tiny_model, "--tasks", "files", "--data", data, "--score", score, *options, "--limit", 5,
                   "--max-new-tokens", 3, "--json", "--predictions", predictions)
    result = json.loads(done.stdout)
    assert (result["task"], result["rows"]) == ("files", 5)
    shown = lines(predictions)
    assert len(shown) == 5
    if score == "nll":
        assert sum(one["nll"] for one in shown) / sum(one["answer_tokens"] for one in shown) == pytest.approx(result["nll"])
    elif score == "choice":
        assert {one["ranked"] for one in shown} <= {"fox", "owl"}
    else:
        assert all(one["references"] for one in shown)


def test_likelihoods_equal_those_of_score(tiny_model, folder, tmp_path):
    """Compares the answer after its prompt token by token. The end of sequence is a token of the answer."""
    result = json.loads(succeed("evaluate", "--model", tiny_model, "--tasks", "files", "--data", folder / "choice.jsonl", "--score", "nll",
                                "--json").stdout)
    rows, end = lines(folder / "choice.jsonl"), json.loads((tiny_model / "config.json").read_text())["eos_token_id"]
    prompt = ("Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
              "### Instruction:\n{}\n\n### Response:\n")
    texts = tmp_path / "texts.jsonl"

    def scored(records):
        write_lines(texts, records)
        return [json.loads(line) for line in succeed("score", "--model", tiny_model, "--input", texts, "--json").stdout.splitlines()]
    prompts = scored([{"text": prompt.format(row["prompt"])} for row in rows])
    whole = scored([{"text": prompt.format(row["prompt"]) + row["completion"]} for row in rows])
    ended = scored([{"ids": one["ids"] + [end]} for one in whole])
    answers = [one["token_logprobs"][before["tokens"] - 1:] for one, before in zip(ended, prompts)]
    assert sum(map(len, answers)) == result["answer_tokens"]
    assert -sum(map(sum, answers)) / result["answer_tokens"] == pytest.approx(result["nll"], abs=1e-4)


# --- rows that cannot be read ---

GOOD = {"instruction": "a", "output": "b"}


@pytest.mark.parametrize("name, content, says", [
    ("rows.jsonl", [GOOD, {"instruction": "a"}], ["rows.jsonl:2: output is missing"]),
    ("rows.jsonl", [GOOD, "\n", "{oops\n"], ["rows.jsonl:3", "not valid JSON"]),
    ("rows.jsonl", [{"chosen": []}], ["rows.jsonl:1", "chosen", "allowed", "messages"]),
    ("rows.jsonl", ["\n"], ["rows.jsonl holds no rows"]),
    ("rows.json", ["[" + json.dumps(GOOD) + ", 3]"], ["rows.json: row 1", "an object"]),
    ("rows.json", ["[" + json.dumps(GOOD)], ["rows.json", "not valid JSON"]),
    ("rows.jsonl", [{"messages": [{"role": "user", "content": "a"}]}], ["rows.jsonl:1: messages", "the last message"]),
    ("rows.jsonl", [{"messages": [{"role": role, "content": "a"} for role in ("user", "assistant") * 2]}],
     ["[config]", "4 turns", 'data.template = "chat"']),
])
def test_an_invalid_row_ends_the_run_before_anything_is_written(tiny_model, tmp_path, name, content, says):
    file = write_lines(tmp_path / "data" / name, content)
    arguments = settings(model__path=tiny_model, data__task="files", data__files__train=f"['{file}']")
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "run", *arguments), *says)
    assert not (tmp_path / "run").exists()


def test_invalid_rows_are_skipped_and_counted_if_configured(tiny_model, tmp_path):
    rows = [json.dumps({"prompt": f"question {i}", "completion": "answer"}) + "\n" for i in range(30)]
    file = write_lines(tmp_path / "rows.jsonl", [*rows[:16], "nothing\n", *rows[16:], '{"prompt": "a"}\n'])
    done = succeed("train", CONFIG, "--out", tmp_path / "run", *settings(
        model__path=tiny_model, train__rounds=1, method__name="fedit", data__task="files", data__files__train=f"['{file}']",
        data__files__strict="false", evaluate__budgets="[1.0]"))
    said = [line for line in done.stderr.splitlines() if "left out" in line]
    assert len(said) == 2, done.stderr  # once for training, once for evaluation
    assert all(re.search(r"2 of 32 rows of \S+rows.jsonl cannot be read and are left out; the first: \S+rows.jsonl:17: ", line) for line in said)
    assert len(sum(json.loads((tmp_path / "run/partition.json").read_text())["clients"], [])) == 27


LONG = {"prompt": "Which animal is it? " * 400, "completion": "fox"}
SHORT = [{"prompt": question(i), "completion": "fox" if i % 2 else "owl"} for i in range(6)]


@pytest.fixture(params=["lines", "list"])
def overlong(request, tmp_path):
    """Writes a file whose third and last rows ask more than the model's positions hold. Returns it and the place of the third row."""
    rows = [*SHORT[:2], LONG, *SHORT[2:], LONG]
    if request.param == "lines":
        return write_lines(tmp_path / "rows.jsonl", rows), "rows.jsonl:3"
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))
    return file, "rows.json: row 2"


@pytest.mark.parametrize("score", ["f1", "exact", "choice"])
def test_questions_that_are_too_long_are_skipped_and_counted_or_named(tiny_model, tmp_path, overlong, score):
    file, place = overlong
    words = ["--model", tiny_model, "--tasks", "files", "--score", score, "--max-new-tokens", "4"] + ["--options", "fox,owl"] * (score == "choice")
    done = evenkeel("evaluate", *words, "--data", file, "--json")
    scored = json.loads(done.stdout)
    assert done.returncode == 1 and scored["rows"] == 6
    assert re.search(rf"2 of 8 rows cannot be asked and are left out; the first: task files: \S+{place}: the prompt has \d+ tokens", done.stderr)
    one_line(evenkeel("evaluate", *words, "--data", file, "--strict"), place, "the prompt has")
    alone = json.loads(succeed("evaluate", *words, "--data", write_lines(tmp_path / "short.jsonl", SHORT), "--json").stdout)
    assert without_seconds([scored]) == without_seconds([alone])  # scores, chance and majority are of the rows that are left


def test_a_run_skips_questions_that_are_too_long_only_if_configured(tiny_model, trained, tmp_path, overlong):
    file, place = overlong
    words = settings(model__path=tiny_model, train__rounds=1, method__name="fedit", data__files__test=f"['{file}']", evaluate__tasks="['files']",
                     evaluate__budgets="[1.0]", evaluate__limit=0)
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "strict", *words), place, "the prompt has")
    done = succeed("train", CONFIG, "--out", tmp_path / "run", *words, "--set", "data.files.strict=false")
    assert [one["rows"] for one in lines(tmp_path / "run/evaluations.jsonl")] == [6]
    assert done.stderr.count("2 of 8 rows cannot be asked and are left out") == 1
    again = evenkeel("evaluate", "--run", trained[0], "--tasks", "files", "--data", file, "--budget", "1", "--limit", "0")
    assert again.returncode == 1 and "2 of 8 rows cannot be asked" in again.stderr.splitlines()[-1]
    one_line(evenkeel("evaluate", "--run", trained[0], "--tasks", "files", "--data", file, "--strict"), place, "the prompt has")


def test_a_file_of_questions_that_are_all_too_long_is_rejected(tiny_model, tmp_path):
    file = write_lines(tmp_path / "rows.jsonl", [LONG, LONG])
    one_line(evenkeel("evaluate", "--model", tiny_model, "--tasks", "files", "--data", file), "none of the 2 rows", "rows.jsonl:1: the prompt has")


def test_a_file_that_no_task_reads_is_refused(trained, tmp_path):
    file = write_lines(tmp_path / "rows.jsonl", SHORT)
    for words, task in [([], "files:alpaca"), (["--tasks", "builtin:tools"], "builtin:tools"), (["--tasks", "builtin"], "builtin:facts")]:
        one_line(evenkeel("evaluate", "--run", trained[0], "--data", file, *words), "--data is", "no evaluated task reads", task, "--tasks files")


def test_missing_files_are_named(tiny_model, tmp_path):
    for pattern, says in {"gone.jsonl": ["gone.jsonl", "is not there"], "*.jsonl": ["*.jsonl", "matches no file"]}.items():
        refused("train", CONFIG, "--out", tmp_path / "run", *settings(
            model__path=tiny_model, data__task="files", data__files__train=f"['{tmp_path}/{pattern}']"), says=["data.files.train", *says])
    refused("train", CONFIG, "--set", "data.task=files", says=["data.files", "data.files.train"])
    refused("evaluate", "--model", tiny_model, "--tasks", "files", says=["data.files.train", "--data"])
    refused("evaluate", "--model", tiny_model, "--tasks", "builtin", "--score", "f1", says=["--score", "--tasks files"])
