"""Follows docs/tutorial-new-method.md in an empty folder: writes its files and runs its commands."""

import filecmp
import tomllib

from tiny import lines
from tutorial import assert_built_soon_and_keeps_every_promise, followed_once

followed = followed_once("tutorial-new-method.md")


def test_the_program_builds_in_time_and_passes_the_contract_tests(followed):
    assert_built_soon_and_keeps_every_promise(followed)


def test_the_new_method_is_listed_with_the_others(followed):
    listing = followed[1][1][0].stdout
    assert "fedit-momentum" in listing and "\nub-smoe" in "\n" + listing


def test_two_rounds_are_run_and_recorded(followed):
    run = followed[0] / "runs/momentum"
    rounds = lines(run / "rounds.jsonl")
    assert [(r["round"], r["method"]) for r in rounds] == [(1, "fedit-momentum"), (2, "fedit-momentum")]
    assert all(r["diagnostics"]["velocity_norm"] > 0 for r in rounds)
    assert tomllib.loads((run / "config.toml").read_text())["method"]["fedit-momentum"]["momentum"] == 0.9
    assert [score.get("served_by") for score in lines(run / "evaluations.jsonl")] == [None, "native_gates"]


def test_without_momentum_it_equals_fedit(followed):
    momentum, none, fedit = (followed[0] / f"runs/{name}/adapter/adapter_model.safetensors"
                             for name in ("momentum", "no-momentum", "fedit"))
    assert filecmp.cmp(none, fedit, shallow=False)
    assert not filecmp.cmp(momentum, fedit, shallow=False)


def test_reports_contain_the_new_method(followed):
    assert "fedit-momentum" in followed[1][-1][0].stdout
    assert (followed[0] / "side-by-side.html").exists()
