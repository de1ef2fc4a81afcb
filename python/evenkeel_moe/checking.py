"""Checks what every method promises, on a run of seconds. `tests/contract` has the same promises for methods in C++."""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any, List, Mapping, Optional

from ._process import text_of
from ._served import MethodLike, ServedMethods, chosen_settings
from ._toml import config_words, flat_keys
from .method import Method
from .run import Run
from .training import train

__all__ = ["check_method"]

CONFIG: Mapping[str, Any] = {
    "name": "check", "threads": 1, "model.path": "builtin:tiny-olmoe", "model.compute_dtype": "float32", "lora.rank": 4, "lora.alpha": 8,
    "data.task": "builtin", "data.limit": 40, "clients.count": 4, "clients.participation": 0.75,
    "clients.budgets": [0.125, 0.25, 0.5, 1.0], "train.rounds": 2, "train.local_epochs": 0.5, "train.batch_size": 2,
    "train.accumulation": 2, "train.optimizer.lr": 5e-3, "evaluate.tasks": ["builtin:routines"], "evaluate.budgets": [0.25, 1.0],
    "evaluate.limit": 2, "evaluate.max_new_tokens": 4, "evaluate.as_exported": False, "evaluate.every": 2}


def check_method(method: MethodLike, *, set: Optional[Mapping[str, Any]] = None, ranks: bool = True) -> List[str]:
    """Trains a small model with a method and checks what the program promises of it: values stay finite, every budget is evaluated, and
    adapter, records and counted bytes do not depend on the order of clients, on a stop and --resume, and on two ranks.

    method: as train() takes it. set: keys that the small run needs, as train() takes them; train.rounds is 2 or more. ranks: False skips
    the run on two ranks.

    Returns what was checked. Raises AssertionError naming the promise that is broken, and EvenkeelError when a run fails.
    """
    config = {**CONFIG, **chosen_settings(method, set)}
    if isinstance(method, Method):
        method = type(method)  # whose options are in the config
    keys = flat_keys(config)
    if keys["train.rounds"] < 2:
        raise ValueError(f"train.rounds is {keys['train.rounds']}, allowed: 2 or more, so that a run can be stopped between two rounds")
    with tempfile.TemporaryDirectory(prefix="evenkeel-") as folder:
        out = pathlib.Path(folder)
        whole = train(config, out=out / "whole", method=method, progress=False)
        checked = ["values are finite", _evaluates(whole, keys["evaluate.budgets"])]
        checked.append(_equal(whole, train({**config, "clients.parallel": 2}, out=out / "parallel", method=method, progress=False),
                              "clients may train in any order"))
        stopped = train(config, set={"train.rounds": 1}, out=out / "resumed", method=method, progress=False)
        checked.append(_equal(whole, stopped.resume(keys["train.rounds"], method=method, progress=False), "a stopped run resumes to the same bits"))
        if ranks:
            with ServedMethods([method]) as served:
                text_of(["train", *config_words(config), *served.words, "--ranks", "2", "--out", str(out / "ranks"), "--quiet"])
            checked.append(_equal(whole, Run(out / "ranks"), "two ranks give the same bits"))
    return checked


def _evaluates(run: Run, given: Any) -> str:
    budgets = given if isinstance(given, (list, tuple)) else [given]
    scored = {score["budget"] for score in run.evaluations_list(rank_eval_mode="all")}
    assert scored == {*budgets}, f"a method is evaluated at every budget: scored are {sorted(scored)} of {budgets}"
    return "every budget is evaluated"


def _without_seconds(value: Any) -> Any:
    """Records without what depends on the machine's speed, and the checksum over it."""
    if isinstance(value, dict):
        return {key: _without_seconds(entry) for key, entry in value.items() if "second" not in key and key != "checksum"}
    return [_without_seconds(entry) for entry in value] if isinstance(value, list) else value


def _equal(one: Run, other: Run, promise: str) -> str:
    """Raises AssertionError with the promise unless two runs have equal adapters and records."""
    name = "adapter/adapter_model.safetensors"
    assert (one.path / name).read_bytes() == (other.path / name).read_bytes(), f"{promise}: the adapters differ"
    assert len(one.rounds_list()) == len(other.rounds_list()), f"{promise}: the numbers of rounds differ"
    for mine, theirs in zip(_without_seconds(one.rounds_list()), _without_seconds(other.rounds_list())):
        differing = [key for key in mine if mine[key] != theirs.get(key)]
        assert not differing, f"{promise}: {', '.join(differing)} of round {mine['round']} differ in the records"
    return promise
