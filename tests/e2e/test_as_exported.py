"""Scores with serving = exported equal the scores of the exported files, row by row."""

import json

import pytest

from tiny import CONFIG, lines, settings, succeed

ROWS = ["--tasks", "builtin:facts,builtin:sizes", "--limit", 3, "--max-new-tokens", 4, "--batch-size", 4, "--seed", 5,
        "--threads", 1]
KEYS = ("accuracy", "accuracy_likelihood", "accuracy_lowercase", "invalid_rate", "rows", "top_k")


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """Runs UB-SMoE. Its phi comes from the last round only and is far from zero."""
    out = tmp_path_factory.mktemp("run") / "ub-smoe"
    done = succeed("train", CONFIG, "--out", out, "--set", "method.ub-smoe.phi_momentum=0.0", *settings(
        model__path=tiny_model, train__rounds=2, data__limit=40, evaluate__tasks='["builtin:facts","builtin:sizes"]',
        evaluate__as_exported="true"))
    return out, done


def answers(predictions, served_by=None):
    """Returns the answers by task, budget and row."""
    return {(one["task"], one["budget"], one["row"]): (one["output"], one["ranked"])
            for one in lines(predictions) if one.get("served_by") == served_by}


@pytest.fixture(scope="module")
def again(run, tmp_path_factory):
    predictions = tmp_path_factory.mktemp("again") / "predictions.jsonl"
    scores = succeed("evaluate", "--run", run[0], "--predictions", predictions, "--json").stdout.splitlines()
    return [json.loads(score) for score in scores], predictions


def test_every_budget_is_scored_in_the_run_and_as_exported(run, again):
    recorded = lines(run[0] / "evaluations.jsonl")
    assert [(one["budget"], one.get("as_exported"), one.get("served_by")) for one in recorded[::2]] == [
        (budget, *way) for budget in (0.125, 1.0)
        for way in ((None, None), (True, "transformers"), (True, "native_gates"))]
    for one, known in zip(again[0], recorded, strict=True):
        assert all(one[key] == known[key] for key in KEYS) and one.get("served_by") == known.get("served_by")
    for text in (run[1].stdout, succeed("evaluate", "--run", run[0], "--budget", 1).stdout):
        for title in ("in the run", "exported: transformers", "exported: native gates"):
            assert text.count(title + " ") == 1
    assert "(exported: native gates)" in succeed("report", run[0]).stdout


@pytest.mark.parametrize("served_by, gates", [("transformers", "renorm_selected"), ("native_gates", "softmax_all")])
def test_the_exported_score_equals_the_score_of_the_exported_adapter(run, again, tiny_model, served_by, gates, tmp_path):
    succeed("export", "--run", run[0], "--format", "peft", "--out", tmp_path / "peft")
    predictions = tmp_path / "predictions.jsonl"
    succeed("evaluate", "--model", tiny_model, "--adapter", tmp_path / "peft", "--gate-norm", gates, "--budget", "0.125,1",
            *ROWS, "--predictions", predictions)
    assert answers(predictions) == answers(again[1], served_by)
    assert answers(predictions) != answers(again[1])


def test_the_transformers_score_equals_the_score_of_the_merged_checkpoint(run, again, tmp_path):
    succeed("export", "--run", run[0], "--format", "merged", "--dtype", "float32", "--out", tmp_path / "merged")
    predictions = tmp_path / "predictions.jsonl"
    succeed("evaluate", "--model", tmp_path / "merged", "--budget", "0.125,1", *ROWS, "--predictions", predictions)
    assert answers(predictions) == answers(again[1], "transformers")


def test_a_method_that_exports_exactly_has_one_score(run, tiny_model, tmp_path):
    served = ["evaluate.as_exported=true", "method.gate_norm=softmax_all", "method.ub-smoe.phi_at_eval=false"]
    for name, words in (("served", served), ("left-out", ["evaluate.as_exported=false"])):
        succeed("train", CONFIG, "--out", tmp_path / name, *settings(model__path=tiny_model, train__rounds=1, data__limit=20),
                *(word for one in words for word in ("--set", one)))
        assert not any("as_exported" in one for one in lines(tmp_path / name / "evaluations.jsonl"))
    fewer = succeed("evaluate", "--run", run[0], "--in-the-run-only", "--json").stdout
    assert len(fewer.splitlines()) == 4 and "as_exported" not in fewer
