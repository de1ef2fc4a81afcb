"""Tests that a run extended with --resume --set train.rounds=N equals a run with N rounds from the start."""

import json
import os
import subprocess

import pytest

from tiny import CONFIG, METHODS, PROGRAM, evenkeel, lines, one_line, settings, succeed, without_seconds

LISTED = subprocess.run([PROGRAM, "list", "methods"], capture_output=True, text=True, check=True).stdout
NAMES = [line.split()[0] for line in LISTED.splitlines() if line and line.split()[0] in METHODS]
SAMPLE = [name for name in NAMES if "EVENKEEL_NIGHTLY" in os.environ or name in ("ub-smoe", "flora", "hetlora")]
ADAPTER = "adapter/adapter_model.safetensors"


def arguments(model, rounds, method="fedit", **changes):
    return settings(model__path=model, train__rounds=rounds, method__name=method, data__limit=30, evaluate__limit=1,
                    evaluate__budgets="[1.0]", **changes)


def expect_same(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(out / records)) == without_seconds(lines(reference / records)), records
    assert (out / "config.toml").read_text().replace(str(out), "") == (reference / "config.toml").read_text().replace(
        str(reference), "")


def test_this_file_lists_all_methods():
    assert len(NAMES) == len(METHODS) == 12


@pytest.mark.parametrize("method", SAMPLE)
@pytest.mark.parametrize("every", [0, 2])
def test_an_extended_run_equals_a_run_with_all_rounds(tiny_model, tmp_path, method, every):
    out, reference = tmp_path / "out", tmp_path / "reference"
    succeed("train", CONFIG, "--out", reference, *arguments(tiny_model, 3, method, evaluate__every=every))
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1, method, evaluate__every=every))
    before = (out / "evaluations.jsonl").read_text()
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=3")
    expect_same(out, reference)
    assert (out / "superseded.jsonl").read_text() == before  # a run of three rounds is not evaluated after the first
    change, = json.loads((out / "manifest.json").read_text())["changes"]
    assert change["train.rounds"] == 3 and change["after_round"] == 1
    succeed("train", CONFIG, "--out", out, "--resume")  # the config file still has the old number
    expect_same(out, reference)
    succeed("report", out)


def test_a_refused_change_of_rounds_is_not_announced(tiny_model, tmp_path):
    out = tmp_path / "out"
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1, threads=2))
    resume = ["train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2"]
    refused = evenkeel(*resume, "--threads", "1")
    one_line(refused, "threads")
    assert "from now on" not in refused.stderr
    assert "the run has 2 rounds from now on, it had 1" in succeed(*resume).stderr


def test_an_interrupted_extension_continues_to_the_new_end(tiny_model, tmp_path):
    out, reference = tmp_path / "out", tmp_path / "reference"
    succeed("train", CONFIG, "--out", reference, *arguments(tiny_model, 2))
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1))
    before = (out / "config.toml").read_bytes()
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2")
    (out / "config.toml").write_bytes(before)  # as after a process died between writing the manifest and the config
    (out / "rounds.jsonl").write_text("".join(line + "\n" for line in (out / "rounds.jsonl").read_text().splitlines()))
    succeed("train", CONFIG, "--out", out, "--resume")
    expect_same(out, reference)


def test_an_extended_run_can_be_extended_again_and_shortened(tiny_model, tmp_path):
    out, reference = tmp_path / "out", tmp_path / "reference"
    succeed("train", CONFIG, "--out", reference, *arguments(tiny_model, 2))
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1))
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2")
    expect_same(out, reference)
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=1"), "train.rounds is 1",
             "2 rounds are done")
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=1", "--from-round", 1)
    assert len(lines(out / "rounds.jsonl")) == 1 and [one["round"] for one in lines(out / "evaluations.jsonl")][-1] == 1


@pytest.mark.parametrize("kind, allowed", [("linear", False), ("cosine", False), ("constant", True)])
def test_runs_with_a_rate_schedule_over_all_rounds_cannot_be_extended(tiny_model, tmp_path, kind, allowed):
    out, reference = tmp_path / "out", tmp_path / "reference"
    told = {"train__schedule__kind": kind, "train__schedule__warmup_rounds": 1}
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1, **told))
    done = evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2")
    if not allowed:
        one_line(done, "train.schedule.kind", kind, "train.rounds is 2, in the run 1")
        return
    assert done.returncode == 0, done.stderr
    succeed("train", CONFIG, "--out", reference, *arguments(tiny_model, 2, **told))
    expect_same(out, reference)


@pytest.mark.parametrize("unit", ["example", "client"])
def test_runs_whose_noise_follows_from_their_budget_cannot_be_extended(tiny_model, tmp_path, unit):
    """Rounds that are done had the noise of fewer rounds."""
    told = {"privacy__unit": f'"{unit}"', "privacy__delta": 1e-4, "privacy__clip": 0.5, "clients__participation": 1.0}
    by_budget, given = tmp_path / "by-budget", tmp_path / "given"
    succeed("train", CONFIG, "--out", by_budget, *arguments(tiny_model, 1, privacy__epsilon=8.0, **told))
    before = (by_budget / "manifest.json").read_bytes()
    one_line(evenkeel("train", CONFIG, "--out", by_budget, "--resume", "--set", "train.rounds=3"), "train.rounds is 3, in the run 1",
             "allowed: with privacy.noise_multiplier given")
    assert (by_budget / "manifest.json").read_bytes() == before
    succeed("train", CONFIG, "--out", given, *arguments(tiny_model, 1, privacy__noise_multiplier=1.0, **told))
    succeed("train", CONFIG, "--out", given, "--resume", "--set", "train.rounds=2")
    assert len(lines(given / "rounds.jsonl")) == 2


def test_rate_schedules_over_rounds_are_recorded_and_resumed(tiny_model, tmp_path):
    told = {"train__schedule__kind": "linear", "train__schedule__final_ratio": 0.5, "train__optimizer__lr": "4e-3"}
    out, again = tmp_path / "out", tmp_path / "again"
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 3, **told))
    assert [one["lr"] for one in lines(out / "rounds.jsonl")] == pytest.approx([4e-3, 3e-3, 2e-3])
    constant = tmp_path / "constant"
    succeed("train", CONFIG, "--out", constant, *arguments(tiny_model, 3, train__optimizer__lr="4e-3"))
    first, second = (lines(folder / "rounds.jsonl") for folder in (out, constant))
    assert "lr" not in second[0]
    assert first[0]["loss"] == second[0]["loss"] and first[2]["loss"] != second[2]["loss"]
    succeed("train", CONFIG, "--out", again, *arguments(tiny_model, 3, **told))
    succeed("train", CONFIG, "--out", again, "--resume", "--from-round", 2)
    expect_same(again, out)
