"""Tests that frames and callbacks have the run's own scores, and that other scores are named and chosen by an argument."""

import csv
import io
import json

import pandas as pd
import pytest

import evenkeel_moe as ek
from package import train
from synthetic_study import synthetic_study
from tiny import lines, sealed, succeed

CHANGES = {"train__rounds": 1, "data__limit": 40, "evaluate__tasks": ["builtin:facts", "builtin:sizes"], "evaluate__budgets": [0.125, 1.0],
           "evaluate__limit": 3, "evaluate__as_exported": True}


@pytest.fixture(scope="module")
def runs(tiny_model, tmp_path_factory):
    """Returns by method a run with every kind of score, and the scores that its callbacks received."""
    made = {}
    for method, more in (("ub-smoe", {"method.ub-smoe.phi_momentum": 0.0}), ("flexlora", {})):
        called, events = [], []
        run = train(tiny_model, tmp_path_factory.mktemp("scores") / method, {**CHANGES, "method__name": method, **more},
                    on_evaluation=called.append, on_event=events.append)
        made[method] = run, called, events
    return made


def own(run, mode=""):
    """Returns the lines of the run itself, read without the package."""
    return [one for one in lines(run.path / "evaluations.jsonl")
            if "served_by" not in one and "client" not in one and one["rank_eval_mode"] == mode]


def means(records, key):
    """Returns the mean accuracy by likelihood for each value of a key."""
    groups = {}
    for record in records:
        groups.setdefault(record[key], []).append(record["accuracy_likelihood"])
    return {value: sum(found) / len(found) for value, found in groups.items()}


@pytest.mark.parametrize("method, mode", [("ub-smoe", ""), ("flexlora", "b")])
def test_a_pivot_has_the_runs_own_numbers(runs, method, mode):
    run, expected = runs[method][0], own(runs[method][0], mode)
    assert len(expected) == 4 < len(lines(run.path / "evaluations.jsonl"))
    table = run.evaluations.pivot_table("accuracy_likelihood", "task", "budget")
    for one in expected:
        assert table.loc[one["task"], one["budget"]] == one["accuracy_likelihood"]
    grouped = run.evaluations.groupby("top_k")["accuracy_likelihood"].mean()
    assert grouped.to_dict() == pytest.approx(means(expected, "top_k")) and set(grouped.index) == {1, 8}


def test_scores_of_the_exported_adapter_have_a_name_and_a_filter(runs):
    run = runs["ub-smoe"][0]
    every = lines(run.path / "evaluations.jsonl")
    for program in ("transformers", "native_gates"):
        expected = [one for one in every if one.get("served_by") == program]
        found = run.evaluations_list(served_by=program)
        assert [one["log_likelihood"] for one in found] == [one["log_likelihood"] for one in expected] and len(found) == 4
    assert {one["log_likelihood"] for one in run.evaluations_list(served_by="native_gates")}.isdisjoint(
        {one["log_likelihood"] for one in run.evaluations_list()}), "the numbers are others, so a mixture would show"
    assert len(run.evaluations_list(served_by="all")) == 12
    with pytest.raises(ValueError, match="served_by is 'vllm', allowed: 'run', 'transformers'"):
        run.evaluations_list(served_by="vllm")


def test_rank_evaluation_modes_are_not_mixed(runs):
    run = runs["flexlora"][0]
    assert [one["rank_eval_mode"] for one in run.evaluations_list()] == ["b"] * 4
    in_mode_a = run.evaluations_list(rank_eval_mode="a")
    assert [one["rank_eval_mode"] for one in in_mode_a] == ["a"] * 4 and {one["top_k"] for one in in_mode_a} == {8}
    assert len(run.evaluations_list(rank_eval_mode="all")) == 8
    with pytest.raises(ValueError, match="rank_eval_mode is 'c'"):
        run.evaluations_list(rank_eval_mode="c")


def test_a_run_with_mode_a_alone_has_its_scores(tiny_model, tmp_path):
    run = train(tiny_model, tmp_path / "run", {**CHANGES, "method__name": "flexlora", "evaluate__rank_eval_modes": ["a"]})
    assert [one["rank_eval_mode"] for one in run.evaluations_list()] == ["a"] * 4


def test_scores_of_single_clients_are_apart(tmp_path):
    own = {"round": 1, "task": "t", "budget": 0.5, "rank_eval_mode": "", "accuracy": 0.5}
    of_clients = [{**own, "client": client, "rows_of": rows, "accuracy": 0.1} for client in (0, 1) for rows in ("own", "all")]
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [own, *of_clients]))
    assert ek.Run(tmp_path).evaluations_list() == [own] and ek.Run(tmp_path).evaluations_list(clients=True) == of_clients


@pytest.mark.parametrize("method, mode", [("ub-smoe", ""), ("flexlora", "b")])
def test_the_callback_receives_the_scores_of_the_frame_and_events_all(runs, method, mode):
    run, called, events = runs[method]
    assert [(one.task, one.budget, one.record["log_likelihood"]) for one in called] == [
        (one["task"], one["budget"], one["log_likelihood"]) for one in own(run, mode)]
    assert len([one for one in events if one["event"] == "evaluation"]) == len(lines(run.path / "evaluations.jsonl"))


def test_an_evaluation_says_what_it_is(runs):
    one = runs["flexlora"][1][0]
    assert repr(one).startswith(f"<Evaluation of {one.task} at budget 0.125, K = 1, mode b, round 1, served by run: accuracy ")
    assert f"log_likelihood {one.record['log_likelihood']:.4f}" in repr(one)
    assert str(one) == f"{one.task} at budget 0.125, K = 1, mode b: accuracy {one.record['accuracy']:.4f}"
    exported = ek.Evaluation("t", 0.5, 2, {"top_k": 4, "served_by": "transformers", "nll": 1.25})
    assert repr(exported) == "<Evaluation of t at budget 0.5, K = 4, round 2, served by transformers: nll 1.2500>"
    assert str(exported) == "t at budget 0.5, K = 4: nll 1.2500"


def test_evaluate_has_the_runs_own_scores_unless_asked(runs):
    run = runs["ub-smoe"][0]
    found = ek.evaluate(run=run)
    assert [one["log_likelihood"] for one in found] == [one["log_likelihood"] for one in own(run)]
    exported = ek.evaluate(run=run, budget=1.0, served_by="transformers")
    assert {one["served_by"] for one in exported} == {"transformers"} and len(exported) == 2


@pytest.fixture
def study(runs, tmp_path):
    arms = ("flexlora", "ub-smoe")
    for arm in arms:
        (tmp_path / arm).mkdir()
        (tmp_path / arm / "seed-5").symlink_to(runs[arm][0].path)
    (tmp_path / "study.json").write_text(sealed({
        "version": 1, "name": "both", "reference": "ub-smoe", "endpoint": "log_likelihood", "seeds": [5],
        "arms": [{"name": arm, "set": []} for arm in arms], "set": [], "common": [], "free": [], "pinned": [], "base": "0" * 64,
        "runs": [{"arm": arm, "seed": 5, "folder": f"{arm}/seed-5", "state": "done", "config": "0" * 64} for arm in arms]}) + "\n")
    return ek.Study.open(tmp_path)


def test_the_values_of_a_study_are_the_runs_own(study, runs):
    values = study.values
    table = values[values["measure"] == "log_likelihood"].pivot_table("value", ["arm", "task"], "budget")
    for arm, mode in (("ub-smoe", ""), ("flexlora", "b")):
        for one in own(runs[arm][0], mode):
            assert table.loc[(arm, one["task"]), one["budget"]] == pytest.approx(one["log_likelihood"], abs=1e-12)
    assert set(study.values_list(served_by="native_gates", rank_eval_mode="a").frame()["served_by"]) >= {"native_gates"}
    assert values["budget"].isna().any(), "costs of whole runs stay"


def test_differences_are_a_small_frame(study):
    frame = study.differences
    assert isinstance(frame, pd.DataFrame) and list(frame["arm"]) == ["flexlora"] * 2 and list(frame["budget"]) == [0.125, 1.0]
    assert list(frame.columns) == ["served_by", "arm", "rank_eval_mode", "reference", "budget", "measure", "n", "difference", "deviation", "low", "high",
                                   "bca_low", "bca_high", "p", "p_holm", "shown", "detectable", "differs_in"]
    assert set(frame["reference"]) == {"ub-smoe"} and set(frame["measure"]) == {"log_likelihood"}
    assert set(frame["rank_eval_mode"]) == {"b"} and set(frame["served_by"]) == {"run"} and list(frame["n"]) == [1, 1]
    values = study.values
    kept = values[values["measure"] == "log_likelihood"].groupby(["arm", "budget"])["value"].mean()
    for _, one in frame.iterrows():
        assert one["difference"] == pytest.approx(kept["flexlora", one["budget"]] - kept["ub-smoe", one["budget"]])
    assert len(study.differences_list(rank_eval_mode="all")) == 4


def test_differences_are_those_of_the_report_with_what_was_shown(runs, tmp_path):
    study = ek.Study.open(synthetic_study(tmp_path / "study", {arm: runs[arm][0].path for arm in ("ub-smoe", "flexlora")}, range(1, 7), levels=(0.0, 2.0)))
    report = study.report()
    found = {(one["served_by"], one["rank_eval_mode"], one["budget"]): one for one in study.differences_list(served_by="all", rank_eval_mode="all")}
    expected = {(result["served_by"], arm["rank_eval_mode"], one["budget"]): (arm, one)
                for result in report["served"] for arm in result["arms"] for one in arm["differences"]}
    assert found.keys() == expected.keys() and len(found) >= 4 and report["endpoint"] == "log_likelihood"
    for place, (arm, one) in expected.items():
        record = found[place]
        assert [record[key] for key in ("difference", "deviation", "p", "p_holm", "detectable")] == [
            one[key] for key in ("mean", "deviation", "p", "p_holm", "detectable")]
        assert [record["low"], record["high"]] == one["interval_t"] and [record["bca_low"], record["bca_high"]] == one["interval_bca"]
        assert (record["arm"], record["reference"], record["measure"], record["n"]) == ("flexlora", "ub-smoe", "log_likelihood", 6)
        assert record["shown"] is (one["p_holm"] < 0.05)
    assert {record["shown"] for record in found.values()} == {True}, "the levels are far apart"
    table = csv.DictReader(io.StringIO(succeed("report", study.path, "--format", "csv").stdout))
    texts = {(line["served_by"], line["rank_eval_mode"]): line["differs_in"] for line in table if line["arm"] == "flexlora" and line["task"]}
    in_frame = {place[:2]: record["differs_in"] for place, record in found.items()}
    assert texts.items() <= in_frame.items() and {"run"} <= {served_by for served_by, _ in texts} and "gating: " in in_frame["run", "b"]
    for sentence in report["served"][0]["conclusions"]:
        assert "was shown at budget" in sentence
    even = ek.Study.open(synthetic_study(tmp_path / "even", {arm: runs[arm][0].path for arm in ("ub-smoe", "flexlora")}, range(1, 5), levels=(0.0, 0.0)))
    assert {one["shown"] for one in even.differences_list()} == {False}
    assert {one["shown"] for one in ek.Study.open(synthetic_study(tmp_path / "one", {
        arm: runs[arm][0].path for arm in ("ub-smoe", "flexlora")}, [1])).differences_list()} == {None}
