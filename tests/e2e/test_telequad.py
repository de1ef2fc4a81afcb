"""Tests TeleQuAD through the program: training on a file of its format, scoring free text, and one line for bad files.
"""

import collections
import copy
import json
import re
import string

import pytest

from tiny import CONFIG, evenkeel, lines, settings, succeed, without_seconds

NAME = "TeleQuAD-v4-full.json"
WORDS = ["bearer", "the cell", "paging", "a handover", "uplink", "an anchor", "timer", "downlink"]


def document(docid):
    """Returns three questions on a context longer than the cutoff below. One is impossible, one has two annotators."""
    context = ". ".join(f"Über {docid} {word} {i}" for i in range(8) for word in WORDS)
    qas = []
    for i, answers in enumerate(([WORDS[docid % 8]], ["bearer 3", "Über 1"], ["paging"])):
        found = [answer for answer in answers if answer in context]
        qas.append({"id": f"{docid}-{i}", "type": "SHORT", "question": f"Which {i} in {docid}?", "is_impossible": i == 2,
                    "answers": [{"text": answer, "answer_start": context.index(answer)} for answer in found]})
    return {"docid": str(docid), "title": "t", "source": f"3GPP-Specs#{docid % 3}-a00#{docid:02d}",
            "paragraphs": [{"context": context, "qas": qas}]}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("telequad")
    (folder / NAME).write_text(json.dumps({"version": "v", "data": [document(i) for i in [*range(1, 21), *range(140, 145)]]}))
    return folder


def train(model, data, out, **changes):
    return evenkeel("train", CONFIG, "--out", out,
                    "--set", 'data.partition={kind="dirichlet",key="docid"}',
                    *settings(model__path=model, data__task="telequad", data__path=data, data__cutoff=300, data__limit=0,
                              train__rounds=1, evaluate__limit=0, evaluate__cutoff=400, evaluate__max_new_tokens=5, **changes))


@pytest.fixture(scope="module")
def run(tiny_model, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "telequad"
    done = train(tiny_model, data, out)
    assert done.returncode == 0, done.stderr
    return out, done


def test_a_run_trains_on_windows_and_scores_free_text(run, data):
    out, done = run
    assert "40 of 40 rows are longer" in done.stderr and "40 of them keep a window" in done.stderr
    assert "not the published file" in done.stderr
    assert sum(map(len, json.loads((out / "partition.json").read_text())["clients"])) == 40
    scores = lines(out / "evaluations.jsonl")
    assert [score["budget"] for score in scores] == [0.125, 1.0]
    for score in scores:
        assert list(score) == ["round", "method", "task", "budget", "rank_eval_mode", "top_k", "rows", "questions", "exact_match",
                               "f1", "empty_rate", "context_cut", "log_likelihood", "likelihood_rows", "seconds", "checksum"]
        assert score["rows"] == score["context_cut"] == 10
    assert all(word in done.stdout for word in ("telequad", "EM", "F1")) and "inv" not in done.stdout
    files = [entry["path"] for entry in json.loads((out / "manifest.json").read_text())["files"]]
    assert files.count(str(data / NAME)) == 1
    report = succeed("report", out).stdout
    assert all(word in report for word in ("telequad", "exact match", "F1"))
    # Measures of other tasks, or not measured
    assert not any(word in report for word in ("chance", "by likelihood", "BERTScore"))


# The rules of the official SQuAD scripts, implemented again.
def normalized(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def f1(output, reference):
    common = sum((collections.Counter(output) & collections.Counter(reference)).values())
    if not output or not reference:
        return float(output == reference)
    return 2 * common / (len(output) + len(reference))


def test_repeated_evaluation_gives_the_recorded_scores_and_those_of_squad(run, tmp_path):
    out, _ = run
    predictions = tmp_path / "predictions.jsonl"
    again = [json.loads(line) for line in
             succeed("evaluate", "--run", out, "--json", "--predictions", predictions).stdout.splitlines()]
    for score, known in zip(again, lines(out / "evaluations.jsonl"), strict=True):
        assert without_seconds(score).items() <= without_seconds(known).items()
        rows = [row for row in lines(predictions) if row["budget"] == score["budget"]]
        assert len(rows) == 10
        for row in rows:
            output, references = normalized(row["output"]), [normalized(text) for text in row["references"]]
            assert row["exact_match"] == max(output == reference for reference in references)
            assert row["f1"] == pytest.approx(max(f1(output, reference) for reference in references))
        for name in ("exact_match", "f1"):
            assert score[name] == pytest.approx(sum(row[name] for row in rows) / 10)


def test_a_model_answers_free_text_and_choices(tiny_model, data):
    out = succeed("evaluate", "--model", tiny_model, "--tasks", "telequad,builtin:facts", "--data", data, "--limit", 3,
                  "--budget", "0.5", "--max-new-tokens", 4).stdout
    assert all(word in out for word in ("telequad", "builtin:facts", "EM", "acc", "chance"))
    assert max(map(len, out.splitlines())) <= 120


def test_impossible_questions_and_other_splits_are_keys(tiny_model, data, tmp_path):
    out = tmp_path / "run"
    done = train(tiny_model, data, out, data__telequad="{split='specs',impossible=true,train_share=0.7,split_seed=3}")
    assert done.returncode == 0, done.stderr
    rows = sum(map(len, json.loads((out / "partition.json").read_text())["clients"]))
    assert 0 < rows <= 53 and rows + lines(out / "evaluations.jsonl")[0]["rows"] == 75


def answer(content):
    return content["data"][1]["paragraphs"][0]["qas"][0]["answers"][0]


@pytest.mark.parametrize("change, says", [
    (lambda content: content.pop("data"), ["data is missing"]),
    (lambda content: content["data"][1].pop("paragraphs"), ["data[1].paragraphs is missing"]),
    (lambda content: answer(content).pop("text"), ["data[1].paragraphs[0].qas[0].answers[0].text is missing"]),
    (lambda content: answer(content).update(answer_start=1), ["data[1].paragraphs[0].qas[0].answers[0]", "answer_start 1"]),
    (None, [NAME]),
])
def test_a_broken_file_is_reported_in_one_line(tiny_model, data, tmp_path, change, says):
    content = copy.deepcopy(json.loads((data / NAME).read_text()))
    text = json.dumps(content)[:-9] if change is None else json.dumps((change(content), content)[1])
    (tmp_path / NAME).write_text(text)
    for done in (train(tiny_model, tmp_path, tmp_path / "run"),
                 evenkeel("evaluate", "--model", tiny_model, "--tasks", "telequad", "--data", tmp_path)):
        assert done.returncode == 1
        said = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
        assert len(said) == 1 and all(word in said[0] for word in (NAME, *says)), done.stderr


def test_a_key_that_rows_do_not_have_is_rejected(tiny_model, data, tmp_path):
    done = train(tiny_model, data, tmp_path / "run", data__partition__key="title")
    assert done.returncode == 1
    assert all(word in done.stderr for word in ("data.partition.key", "title", "spec, source, docid"))
