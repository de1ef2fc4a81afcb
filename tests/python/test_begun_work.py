"""Tests that a resumed run takes no begun work of another source of its method (--changed-method), and no answers of other rows."""

import json

import pytest

from own_method import adapter, python, records, succeeded, train  # noqa: F401
from tiny import lines, one_line, without_seconds

SOURCE = """
import os

import evenkeel_moe as ek


class Decays(ek.Method):
    def prepare(self, download, view):
        setup = super().prepare(download, view)
        if not view.client.trains and view.client.budget == 1 and os.path.exists("{stop}"):
            raise RuntimeError("not now")
        if not view.client.trains:
            setup.top_k = min(setup.top_k, {top_k})
        return setup

    def edit_gradients(self, step):
        for site, gradients in step.gradients.items():
            for name, gradient in gradients.items():
                gradient += {weight} * getattr(step.parameters[site], name)

    def aggregate(self, server, state, round, uploads):
        if state.round == 1 and os.path.exists("{stop}"):
            raise RuntimeError("not now")
        return super().aggregate(server, state, round, uploads)
"""
ONE_ROUND = ["--set", "train.rounds=1", "--set", "evaluate.budgets=[0.5, 1.0]", "--set", "evaluate.limit=8"]


class Own:
    """A file with the method, whose source a test changes. It fails in the second round or score where `stop` exists."""

    def __init__(self, folder):
        self.file, self.stop = folder / "own.py", folder / "stop"
        self.method = f"{self.file}:Decays"
        self.write()

    def write(self, weight=0.1, top_k=8):
        self.file.write_text(SOURCE.format(weight=weight, top_k=top_k, stop=self.stop))

    def fails(self, config, out, *more):
        self.stop.touch()
        one_line(train(config, out, *more, method=self.method), "not now")
        self.stop.unlink()


@pytest.fixture
def own(tmp_path):
    return Own(tmp_path)


def stop_before_the_first_score(own, config, out, *more):
    """Leaves a run as if it had ended between the answers of its first score and the score's record."""
    own.fails(config, out, *ONE_ROUND, *more)
    assert len(lines(out / "evaluations.jsonl")) == 1 and lines(out / "evaluating.jsonl")
    (out / "evaluations.jsonl").write_text("")


def scores(out):
    return without_seconds(lines(out / "evaluations.jsonl"))


def test_a_begun_round_is_trained_again_with_the_changed_source(own, config, tmp_path):
    out, reference = tmp_path / "run", tmp_path / "reference"
    succeeded(config, reference, "--set", "train.rounds=1", method=own.method)
    own.fails(config, out)
    assert list((out / "checkpoint/uploads-2").glob("*.upload.safetensors")) and len(records(out)) == 1
    own.write(weight=0.9)
    succeeded(config, reference, "--resume", "--set", "train.rounds=2", "--changed-method", method=own.method)
    succeeded(config, out, "--resume", "--changed-method", method=own.method)
    assert adapter(out) == adapter(reference)


def test_a_begun_score_is_answered_again_with_the_changed_source(own, config, tmp_path):
    out, reference = tmp_path / "run", tmp_path / "reference"
    stop_before_the_first_score(own, config, out)
    own.write(top_k=1)
    succeeded(config, reference, *ONE_ROUND, method=own.method)
    succeeded(config, out, "--resume", "--changed-method", method=own.method)
    assert adapter(out) == adapter(reference) and scores(out) == scores(reference)


@pytest.mark.parametrize("limit", [5, 11])
def test_a_begun_score_is_answered_again_with_another_limit(own, config, tmp_path, limit):
    out, reference = tmp_path / "run", tmp_path / "reference"
    stop_before_the_first_score(own, config, out)
    succeeded(config, reference, *ONE_ROUND, "--set", f"evaluate.limit={limit}", method=own.method)
    succeeded(config, out, "--resume", "--set", f"evaluate.limit={limit}", method=own.method)
    assert [line["rows"] for line in scores(out)] == [limit] * 2 and scores(out) == scores(reference)


def rows(file, subject, count):
    asked = ({"prompt": f"Is {subject} {i} even?", "completion": "no" if i % 2 else "yes"} for i in range(count))
    file.write_text("".join(json.dumps(row) + "\n" for row in asked))


def test_a_begun_score_is_answered_again_without_a_client_that_has_left(own, config, tmp_path):
    for name, count in (("ant", 4), ("bee", 6), ("auk", 3), ("bat", 5)):
        rows(tmp_path / f"{name}.jsonl", name, count)

    def clients(until=""):
        one, other = (f'budget = 0.5, data = "{tmp_path / data}.jsonl", test = "{tmp_path / test}.jsonl"' for data, test in
                      (("ant", "auk"), ("bee", "bat")))
        return ["--set", f"clients.client=[{{ {one}{until} }}, {{ {other} }}]"]

    out = tmp_path / "run"
    stop_before_the_first_score(own, config, out, "--set", "data.task=files", "--set", "data.limit=0", "--set", "clients.count=2",
                                "--set", 'data.files={ score = "nll", held_out = 0.0 }', "--set", "clients.budgets=[]",
                                "--set", 'evaluate.tasks=["files"]', *clients())
    succeeded(config, out, "--resume", *clients(", until = 0"), method=own.method)
    assert [line["rows"] for line in scores(out)] == [5] * 2, "the other client's alone"
