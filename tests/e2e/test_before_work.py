"""Checks that a run reads all its inputs before it starts.

On resume, a test file may be corrected if no score was computed from it yet.
"""

import hashlib
import json

import pytest

from tiny import CONFIG, evenkeel, lines, one_line, settings, succeed, without_seconds

GOOD = [{"prompt": f"Name thing {i}.", "completion": "oak" if i % 2 else "tin"} for i in range(6)]
LATE = {"prompt": "Name a metal."}
LONG = {"prompt": "Name a tree. " * 2000, "completion": "oak"}


def write(file, rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def files(folder, model, test=None, **changes):
    """Returns the arguments after `train CONFIG` of a run on user rows."""
    write(folder / "train.jsonl", GOOD)
    write(folder / "test.jsonl", test or GOOD[:2])
    return settings(**{
        "model__path": model, "method__name": "fedit", "data__task": "files", "data__limit": 0, "data__partition__kind": "iid",
        "data__files__train": f"['{folder}/train.jsonl']", "data__files__test": f"['{folder}/test.jsonl']", "evaluate__budgets": "[1.0]",
        "evaluate__limit": 0, "train__rounds": 2, "clients__count": 2, "clients__budgets": "[0.5,1.0]",
        "clients__participation": "1.0"} | changes)


def refused_before(tmp_path, words, *says):
    """Checks that training ends with exit code 1 and one line that contains `says`, before a round is trained or a file written."""
    done = evenkeel("train", CONFIG, "--out", tmp_path / "out", *words)
    one_line(done, *says)
    assert "round 1" not in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize("rows, score, says", [
    ([GOOD[0], LATE], "f1", ["test.jsonl:2", "completion is missing"]),
    ([GOOD[0], {"prompt": "x", "completion": 7}], "nll", ["test.jsonl:2", "completion"]),
    ([GOOD[0], LONG], "f1", ["test.jsonl:2", "positions"]),
    ([GOOD[0], LONG], "choice", ["test.jsonl:2", "positions"]),
    ([LONG], "exact", ["test.jsonl:1", "positions"]),
    ([{"prompt": "Name it.", "completion": "elm"}], "choice", ["test.jsonl:1"]),
])
def test_a_test_row_that_cannot_be_scored_is_rejected(tiny_model, tmp_path, rows, score, says):
    options = {"data__files__options": "['oak','tin']"} if score == "choice" else {}
    refused_before(tmp_path, files(tmp_path, tiny_model, rows, data__files__score=score, **options), *says)


@pytest.mark.parametrize("max_new_tokens, says", [(4, None), (5000, "positions")])
def test_the_length_of_answers_counts_in_the_length_check(tiny_model, tmp_path, max_new_tokens, says):
    words = files(tmp_path, tiny_model, evaluate__max_new_tokens=max_new_tokens, train__rounds=1)
    if says:
        refused_before(tmp_path, words, "test.jsonl:1", says)
    else:
        succeed("train", CONFIG, "--out", tmp_path / "out", *words)


def test_a_prompt_that_just_fits_is_accepted(tiny_model, tmp_path):
    """The check first uses an upper bound, so that answers need not be tokenised.

    A prompt must not be rejected by that bound alone.
    """
    positions = json.loads((tiny_model / "config.json").read_text())["max_position_embeddings"]
    words = " a" * positions

    def rows(count):
        return [{"prompt": words[:2 * count], "completion": "oak"}]
    options = {"data__files__score": "choice", "data__files__options": "['oak','tin']", "train__rounds": 1,
               "evaluate__max_new_tokens": 1, "data__template": "plain"}
    low, high = 1, positions  # the longest prompt that is accepted, found by bisection
    while high - low > 1:
        middle = (low + high) // 2
        done = evenkeel("evaluate", "--model", tiny_model, "--tasks", "files", "--data", write(tmp_path / "one.jsonl", rows(middle)),
                        "--score", "choice", "--options", "oak,tin", "--max-new-tokens", 1, "--template", "plain")
        low, high = (middle, high) if done.returncode == 0 else (low, middle)
    succeed("train", CONFIG, "--out", tmp_path / "fits", *files(tmp_path, tiny_model, rows(low), **options))
    refused_before(tmp_path, files(tmp_path, tiny_model, rows(low + 1), **options), "test.jsonl:1", "positions")


def test_an_invalid_row_of_a_clients_test_file_is_rejected(tiny_model, tmp_path):
    for name, rows in {"a.jsonl": GOOD, "b.jsonl": GOOD, "b-test.jsonl": [GOOD[0], LATE]}.items():
        write(tmp_path / name, rows)
    table = f"[{{name='a', data='{tmp_path}/a.jsonl'}}, {{name='b', data='{tmp_path}/b.jsonl', test='{tmp_path}/b-test.jsonl'}}]"
    words = settings(model__path=tiny_model, method__name="fedit", data__task="files", data__limit=0, data__partition__kind="iid",
                     clients__client=table, clients__count=2, clients__budgets="[0.5,1.0]", evaluate__per_client="true",
                     evaluate__budgets="[1.0]")
    refused_before(tmp_path, words, "(b)", "b-test.jsonl:2", "completion is missing")
    write(tmp_path / "b-test.jsonl", [GOOD[0], LONG])
    refused_before(tmp_path, words, "b-test.jsonl:2", "positions")


def test_a_commonsense_folder_with_a_missing_or_invalid_task_is_rejected(tiny_model, tmp_path):
    row = {"instruction": "Is 2 even? Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
    (tmp_path / "data").mkdir()
    (tmp_path / "data/commonsense_11k_rebuilt.json").write_text(json.dumps([row] * 8))
    words = settings(model__path=tiny_model, method__name="fedit", data__task="commonsense", data__path=tmp_path / "data",
                     data__limit=0, data__partition__kind="iid", evaluate__tasks="['boolq']")
    refused_before(tmp_path, words, "boolq/test.json")
    (tmp_path / "data/boolq").mkdir()
    (tmp_path / "data/boolq/test.json").write_text(json.dumps([row, {"instruction": "x"}]))
    refused_before(tmp_path, words, "boolq/test.json", "row 1", "output")


@pytest.mark.parametrize("encoder, says", [("missing", "is not a folder"), ("empty", "no layer is given")])
def test_an_invalid_encoder_is_rejected(tiny_model, tmp_path, encoder, says):
    (tmp_path / "empty").mkdir()
    refused_before(tmp_path, files(tmp_path, tiny_model, evaluate__bert_score__encoder=f"'{tmp_path}/{encoder}'"), encoder, says)


def test_evaluate_reads_all_tasks_before_it_scores_the_first(tiny_model, tmp_path):
    words = files(tmp_path, tiny_model, train__rounds=1)
    succeed("train", CONFIG, "--out", tmp_path / "out", *words)
    done = evenkeel("evaluate", "--run", tmp_path / "out", "--tasks", "builtin:facts,files", "--data",
                    write(tmp_path / "late.jsonl", [GOOD[0], LATE]), "--json", "--strict")
    one_line(done, "late.jsonl:2")
    assert not done.stdout


@pytest.mark.parametrize("score, rows, says", [
    ("choice", [GOOD[0], LONG], ["late.jsonl:2", "positions"]),
    ("f1", [LONG], ["late.jsonl:1", "positions"]),
    ("exact", [GOOD[0], GOOD[1], LONG], ["late.jsonl:3", "positions"]),
    ("nll", [LONG], ["files", "answer"]),
    ("choice", [{"prompt": "Name it.", "completion": "elm"}], ["late.jsonl:1", "none of its options"]),
    ("exact", [GOOD[0], {"prompt": "Name it.", "completion": " "}], ["late.jsonl:2", "empty"]),
])
def test_evaluate_checks_all_rows_before_scoring(score, rows, says, tiny_model, tmp_path):
    """No task is scored at any budget, not even one that comes before the invalid task."""
    options = ["--options", "oak,tin"] if score == "choice" else []
    words = ["--tasks", "builtin:facts,files", "--data", write(tmp_path / "late.jsonl", rows), "--score", score, *options, "--json", "--strict",
             "--predictions", tmp_path / "answers.jsonl"]
    succeed("train", CONFIG, "--out", tmp_path / "out", *files(tmp_path, tiny_model, train__rounds=1))
    for source in (["--model", tiny_model], ["--run", tmp_path / "out"]):
        done = evenkeel("evaluate", *source, *words)
        one_line(done, *says)
        assert not done.stdout and "builtin:facts at budget" not in done.stderr and not (tmp_path / "answers.jsonl").exists()


def test_a_prompt_with_its_longest_option_must_fit(tiny_model, tmp_path):
    """A prompt can fit with the new tokens but not with a long option."""
    rows = [{"prompt": "Name a tree.", "completion": "oak", "options": ["oak", "elm " * 1200]}]
    refused_before(tmp_path, files(tmp_path, tiny_model, rows, data__files__score="choice", data__files__options="['oak','tin']"), "test.jsonl:1", "positions")
    done = evenkeel("evaluate", "--model", tiny_model, "--tasks", "files", "--data", write(tmp_path / "late.jsonl", rows), "--score", "choice")
    one_line(done, "late.jsonl:1", "positions")


def test_missing_task_files_are_reported_before_scoring(tiny_model, tmp_path):
    row = {"instruction": "Is 2 even? Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
    (tmp_path / "data/boolq").mkdir(parents=True)
    (tmp_path / "data/boolq/test.json").write_text(json.dumps([row] * 2))
    for tasks, says in (("boolq,piqa", "piqa/test.json"), ("builtin:facts,arc_c,boolq", "ARC-Challenge/test.json")):
        done = evenkeel("evaluate", "--model", tiny_model, "--tasks", tasks, "--data", tmp_path / "data", "--json", "--limit", 1)
        one_line(done, says)
        assert not done.stdout and " rows" not in done.stderr
    (tmp_path / "data/commonsense_11k_rebuilt.json").write_text(json.dumps([row] * 8))
    words = settings(model__path=tiny_model, method__name="fedit", data__task="commonsense", data__path=tmp_path / "data", data__limit=0,
                     data__partition__kind="iid")
    refused_before(tmp_path, [*words, *settings(evaluate__tasks="['boolq', 'piqa']")], "piqa/test.json")
    refused_before(tmp_path, [*words, *settings(evaluate__tasks="['commonsense']")], "test.json")


# --- a resumed run ---

def digests(out):
    return {entry["path"]: entry["sha256"] for entry in json.loads((out / "manifest.json").read_text())["files"]
            if "sha256" in entry}


def test_a_test_file_without_scores_may_be_corrected(tiny_model, tmp_path):
    words = files(tmp_path, tiny_model)
    out = tmp_path / "out"
    succeed("train", CONFIG, "--out", out, *words)
    adapter = (out / "adapter/adapter_model.safetensors").read_bytes()
    (out / "evaluations.jsonl").unlink()  # as after a process died between the last round and its evaluation
    (out / "evaluating.jsonl").write_text("")
    mended = write(tmp_path / "test.jsonl", GOOD[2:5])
    done = succeed("train", CONFIG, "--out", out, "--resume", *words)
    assert "test.jsonl has changed since the run was made: no score was computed from it" in done.stderr
    assert digests(out)[str(mended)] == hashlib.sha256(mended.read_bytes()).hexdigest()
    change, = json.loads((out / "manifest.json").read_text())["changes"]
    assert change["files"] == [str(mended)] and change["after_round"] == 2
    fresh = tmp_path / "fresh"
    succeed("train", CONFIG, "--out", fresh, *words)
    assert without_seconds(lines(out / "evaluations.jsonl")) == without_seconds(lines(fresh / "evaluations.jsonl"))
    assert (out / "adapter/adapter_model.safetensors").read_bytes() == adapter
    write(mended, GOOD[:1])  # scores exist now
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", *words), "test.jsonl", "has changed since",
             "scores after round 2 were computed from it")
    succeed("report", out)


def test_only_test_files_of_scored_tasks_may_not_change(tiny_model, tmp_path):
    write(tmp_path / "other.jsonl", GOOD[:3])
    words = files(tmp_path, tiny_model)
    sets = (f"{{ a = {{ train = ['{tmp_path}/train.jsonl'], test = ['{tmp_path}/test.jsonl'] }}, "
            f"b = {{ test = ['{tmp_path}/other.jsonl'] }} }}")
    words = [word for word in words if not word.startswith("data.files.")]
    words = [word for i, word in enumerate(words) if not (word == "--set" and (i + 1 == len(words) or words[i + 1] == "--set"))]
    words += settings(data__files=sets)
    out = tmp_path / "out"
    succeed("train", CONFIG, "--out", out, *words)
    (out / "evaluations.jsonl").write_text((out / "evaluations.jsonl").read_text().splitlines()[0] + "\n")
    write(tmp_path / "test.jsonl", GOOD[2:4])  # the file of the task that is scored
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", *words), "test.jsonl", "were computed from it")
    write(tmp_path / "test.jsonl", GOOD[:2])
    write(tmp_path / "other.jsonl", GOOD[3:5])
    succeed("train", CONFIG, "--out", out, "--resume", *words)
    assert [(one["task"], one["rows"]) for one in lines(out / "evaluations.jsonl")] == [("files:a", 2), ("files:b", 2)]


@pytest.mark.parametrize("file", ["train.jsonl"])
def test_training_files_may_not_change(tiny_model, tmp_path, file):
    words = files(tmp_path, tiny_model, train__rounds=1)
    succeed("train", CONFIG, "--out", tmp_path / "out", *words)
    (tmp_path / "out/evaluations.jsonl").unlink()
    write(tmp_path / file, GOOD[:5])
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", "--resume", *words), file, "goes on with the files it began with")
