"""Tests what is said and kept of an exception in a hook of a class of this process."""

import traceback
import weakref

import numpy as np
import pytest

import evenkeel_moe as ek

QUICK = {"train.rounds": 1, "train.local_epochs": 0.25, "evaluate.every": 0}


def stacks_nothing(self, server, state, round, uploads):
    return np.stack([])


class StacksInBase(ek.Method):
    aggregate = stacks_nothing


class Derived(StacksInBase):
    pass


def without_a_file():
    """A class of a text, as of `python - < script`."""
    text = "class Typed(ek.Method):\n    def aggregate(self, server, state, round, uploads):\n        return np.stack([])\n"
    names = {"__name__": "no_module_of_a_file", "ek": ek, "np": np}
    exec(compile(text, "<stdin>", "exec"), names)
    return names["Typed"]


@pytest.mark.parametrize("cls, place", [(StacksInBase, r"test_hook_errors.py, line \d+, in stacks_nothing"),
                                        (Derived, r"test_hook_errors.py, line \d+, in stacks_nothing"), (without_a_file(), "<stdin>, line 3, in aggregate")])
def test_an_error_in_a_library_names_the_line_of_the_class(config, tmp_path, cls, place):
    with pytest.raises(ek.EvenkeelError, match=rf"ValueError: need at least one array to stack \({place}\)"):
        ek.train(config, method=cls, set=QUICK, out=tmp_path / "run")


class Fails(ek.Method):
    """Fails while its frames, and those of the error's cause, hold arrays."""

    held = []

    def holds(self, state):
        array = next(iter(state.adapters.values())).a
        Fails.held.append(weakref.ref(array))
        raise KeyError("missing")

    def aggregate(self, server, state, round, uploads):
        array = next(iter(state.adapters.values())).b
        Fails.held.append(weakref.ref(array))
        try:
            self.holds(state)
        except KeyError as error:
            raise LookupError("nothing there") from error


def test_the_cause_has_its_traceback_and_holds_no_array(config, tmp_path):
    with pytest.raises(ek.EvenkeelError) as raised:
        ek.train(config, method=Fails, set=QUICK, out=tmp_path / "run")
    cause = raised.value.__cause__
    assert [frame.name for one in (cause, cause.__cause__) for frame in traceback.extract_tb(one.__traceback__)][-3:] == ["aggregate", "aggregate", "holds"]
    assert "in aggregate" in "".join(traceback.format_exception(raised.value))
    assert len(Fails.held) == 2 and [held() for held in Fails.held] == [None, None]
