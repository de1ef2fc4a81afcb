"""Follows docs/tutorial-new-method.md in an empty folder: writes its files and runs its commands."""

import filecmp
import tomllib

from tiny import lines
from tutorial import assert_built_soon_and_keeps_every_promise, followed_once

followed = followed_once("tutorial-new-method.md")


def adapters(followed, *runs):
    return [followed[0] / f"runs/{name}/adapter/adapter_model.safetensors" for name in runs]


def test_two_rounds_are_run_and_recorded(followed):
    run = followed[0] / "runs/momentum"
    rounds = lines(run / "rounds.jsonl")
    assert [(r["round"], r["method"]) for r in rounds] == [(1, "server-momentum"), (2, "server-momentum")]
    assert tomllib.loads((run / "config.toml").read_text())["method"]["server-momentum"]["momentum"] == 0.9
    assert [score.get("served_by") for score in lines(run / "evaluations.jsonl")] == [None, "native_gates"]


def test_without_momentum_it_equals_fedit(followed):
    momentum, none, fedit = adapters(followed, "momentum", "no-momentum", "fedit")
    assert filecmp.cmp(none, fedit, shallow=False)
    assert not filecmp.cmp(momentum, fedit, shallow=False)


def test_reports_contain_the_new_method(followed):
    assert "server-momentum" in followed[1][0][0].stdout
    assert (followed[0] / "side-by-side.html").exists()


def test_the_promises_are_checked_by_pytest(followed):
    assert "1 passed" in followed[1][1][0].stdout


def test_the_program_in_cpp_builds_in_time_and_passes_the_contract_tests(followed):
    assert_built_soon_and_keeps_every_promise(followed, 2)


def test_the_method_in_cpp_is_listed_with_the_others_and_is_the_same(followed):
    listing = followed[1][2][0].stdout
    assert "fedit-momentum" in listing and "\nub-smoe" in "\n" + listing
    python, cpp = adapters(followed, "momentum", "cpp")
    assert filecmp.cmp(python, cpp, shallow=False)
    rounds = lines(followed[0] / "runs/cpp/rounds.jsonl")
    assert all(r["diagnostics"]["velocity_norm"] > 0 for r in rounds)
