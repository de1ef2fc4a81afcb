"""Tests arguments and errors of functions that drive other commands than train."""

import copy
import gc
import io
import multiprocessing
import os
import pickle
import signal
import time
import warnings

import numpy as np
import pytest

import evenkeel_moe as ek
from evenkeel_moe import _process, commands
from evenkeel_moe._calls import Refused

TINY = "builtin:tiny-olmoe"


def fail(error):
    raise error


@pytest.mark.parametrize("error, values", [
    (ek.EvenkeelError("a line", 1, "data"), {"exit_code": 1, "kind": "data"}), (ek.EvenkeelError("a line", -9), {"exit_code": -9, "kind": None}),
    (Refused("a line", 7), {"exit_code": 1, "kind": None, "number": 7}), (ek.MissingPackage("reading", "pyarrow", "tables"), {"name": "pyarrow"})])
def test_errors_are_the_same_after_pickling_and_copying(error, values):
    error.note = "mine"
    for one in (copy.copy(error), *(pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))):
        assert type(one) is type(error) and str(one) == str(error) != "" and one.args == error.args
        assert {key: getattr(one, key) for key in (*values, "note")} == {**values, "note": "mine"}


def test_an_error_of_another_process_arrives():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(ek.EvenkeelError, match="a line") as raised:
            pool.apply_async(fail, [ek.EvenkeelError("a line", 2, "internal")]).get(timeout=120)
    assert (raised.value.exit_code, raised.value.kind) == (2, "internal")


def test_without_texts_there_are_no_answers_but_the_errors_of_a_model():
    assert ek.generate([], model=TINY) == [] and ek.score([], model=TINY) == [] and ek.score([], model=TINY, strict=False) == []
    for call in (lambda: ek.generate([], model="nowhere"), lambda: ek.score([], model="nowhere")):
        with pytest.raises(ek.EvenkeelError, match="nowhere"):
            call()


def test_arrays_of_numpy_are_lists_of_flags():
    assert commands._flags({"budget": np.array([0.25, 1]), "limit": np.int64(2), "tasks": np.array(["a", "b"]), "strict": np.bool_(False)}) == \
        ["--budget", "0.25,1.0", "--limit", "2", "--tasks", "a,b"]
    with pytest.raises(TypeError, match="^budget is of type list, allowed: a text, a path, a number, or a list of them"):
        commands._flags({"budget": np.ones((2, 2))})
    scores = ek.evaluate(model=TINY, tasks="builtin:facts", limit=1, budget=np.array([0.25, 1]))
    assert [score["budget"] for score in scores] == [0.25, 1.0]


def test_a_fetched_model_is_known_by_its_config(tmp_path):
    with pytest.raises(ek.EvenkeelError, match=f"{tmp_path} exists already; remove it, or name another folder"):
        ek.fetch_smollm2(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert ek.fetch_smollm2(tmp_path) == tmp_path


def test_a_command_leaves_no_file_open():
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        assert ek.list_methods()
        with pytest.raises(ek.EvenkeelError):
            ek.list_keys("planets")
        gc.collect()
    assert [str(one.message) for one in caught if one.category is ResourceWarning] == []


def program(folder, monkeypatch, text):
    """Makes a shell script the program of the package."""
    file = folder / "program"
    file.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo evenkeel {ek.__version__} && exit\n{text}\n')
    file.chmod(0o755)
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(file))


def test_a_program_without_a_last_event_has_a_defect(monkeypatch, tmp_path):
    program(tmp_path, monkeypatch, "exit 0")
    with pytest.raises(ek.EvenkeelError, match="the program ended without its last event") as raised:
        ek.train("any.toml", out=tmp_path / "run")
    assert (raised.value.exit_code, raised.value.kind) == (2, "internal")


def refused_methods():
    with pytest.raises(ek.EvenkeelError, match="^nothing is there$") as raised:
        ek.list_methods()
    return raised.value.exit_code


@pytest.mark.parametrize("ending, call, result", [
    ("echo '{\"name\": \"a\"}'", ek.list_methods, [{"name": "a"}]),
    ("echo evenkeel: nothing is there >&2; exit 1", refused_methods, 1)], ids=["exit code 0", "exit code 1"])
def test_a_process_that_holds_stderr_open_holds_up_no_command(monkeypatch, tmp_path, ending, call, result):
    program(tmp_path, monkeypatch, f"sleep 100 >/dev/null & echo $! >{tmp_path}/pid; {ending}")
    monkeypatch.setattr(_process, "LAST_WORDS", 1)
    begin = time.monotonic()
    try:
        assert call() == result and time.monotonic() - begin < 50
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_line_of_stderr_may_come_while_its_lines_are_read():
    class Line(str):
        """A line during whose reading another one comes."""
        def startswith(self, *start):
            errors.last.append("later")
            return super().startswith(*start)

    errors = _process._Errors(io.StringIO())
    errors.last.append(Line("evenkeel: nothing is there"))
    assert errors.message() == "nothing is there"


def test_the_end_of_stderr_is_awaited_once(monkeypatch):
    """close() and message() both need it."""
    seconds = []
    monkeypatch.setattr(_process._Errors, "join", lambda self, timeout=None: seconds.append(timeout))
    errors = _process._Errors(io.StringIO())
    assert [errors.wait(), errors.message(), errors.message()][1:] == 2 * ["the program ended without a word"] and seconds == [_process.LAST_WORDS]
