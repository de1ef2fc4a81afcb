"""Training: starts a run, or goes on with one."""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass, fields
from typing import Any, Callable, List, Mapping, Optional

from ._paths import PathLike
from ._process import Event, lines_of
from ._program import shared_path
from ._progress import bar_for
from ._toml import set_flags
from .run import Run

__all__ = ["Evaluation", "Round", "train"]

@dataclass(frozen=True)
class Round:
    """A committed round, as the event "round" tells of it. `Run.rounds` has every measure."""

    round: int
    """1 is the first."""
    rounds: int
    """Rounds of the run in all."""
    loss: float
    """Mean loss per target token over the round's clients, natural logarithm."""
    participants: int
    lost: int
    """Clients that did not reply."""
    steps: int
    tokens: int
    bytes_up: int
    bytes_down: int
    experts_per_token: float
    seconds: float
    tokens_per_second: float

    def __str__(self) -> str:
        return f"round {self.round}/{self.rounds}: loss {self.loss:.4f}, {self.tokens:,} tokens, {self.seconds:.1f} s"


@dataclass(frozen=True)
class Evaluation:
    """A score of one task at one budget."""

    task: str
    budget: float
    round: int
    """Rounds done; 0: before the first."""
    record: Mapping[str, Any]
    """All keys of the line of evaluations.jsonl."""

    def __str__(self) -> str:
        measure = next((name for name in ("accuracy", "f1", "exact_match", "nll") if name in self.record), None)
        score = f"{measure} {self.record[measure]:.4f}" if measure else "scored"
        return f"{self.task} at budget {self.budget:g}: {score}"


class _Listener:
    """Calls the callbacks with what the events say."""

    def __init__(self, progress: Optional[bool], on_round: Optional[Callable[[Round], Any]],
                 on_evaluation: Optional[Callable[[Evaluation], Any]], on_event: Optional[Callable[[Event], Any]]) -> None:
        self.bar = bar_for(progress)
        self.on_round, self.on_evaluation, self.on_event = on_round, on_evaluation, on_event

    def __call__(self, event: Event) -> None:
        self.bar.take(event)
        kind = event["event"]
        if self.on_round is not None and kind == "round":
            self.on_round(Round(**{field.name: event[field.name] for field in fields(Round)}))
        if self.on_evaluation is not None and kind == "evaluation":
            self.on_evaluation(Evaluation(event["task"], event["budget"], event.get("round", 0), event))
        if self.on_event is not None:
            self.on_event(event)


def _config_path(config: PathLike) -> str:
    """The file, or the one of that name that ships with the program."""
    path = pathlib.Path(config)
    shipped = None if path.is_absolute() or path.exists() else shared_path(path.as_posix())
    return str(shipped or path)


def train(config: PathLike, *, set: Optional[Mapping[str, Any]] = None, out: Optional[PathLike] = None, resume: bool = False,
          base: Optional[PathLike] = None, threads: Optional[int] = None, device: Optional[str] = None, progress: Optional[bool] = None,
          on_round: Optional[Callable[[Round], Any]] = None, on_evaluation: Optional[Callable[[Evaluation], Any]] = None,
          on_event: Optional[Callable[[Event], Any]] = None) -> Run:
    """Runs federated fine-tuning as a TOML file says, and returns the run.

    config: the file, or one that ships with the program, as in "configs/demo.toml".
    set: keys to change, {"method.name": "fedit", "train.rounds": 3}. {"train": {"rounds": 3}} changes the same key, and no other.
    out: the run folder, new or empty; None: runs/<name of the config>.
    resume: resume from the last committed round in `out`. The result has the bits of a run that was never stopped.
    base: with resume, the folder that the run's base model was moved to.
    progress: a progress bar; None: where somebody looks at it, a terminal or a notebook.
    on_round, on_evaluation: called after every round and every score. on_event: called with every event of
    docs/json-lines.md. What a callback raises stops the run cleanly and is raised here.

    Raises EvenkeelError with the program's line. Ctrl-C stops the program, which saves its state, and raises
    KeyboardInterrupt after that; `Run(out).resume()` goes on. Callbacks run in the calling thread.
    """
    words: List[str] = ["train", _config_path(config), *set_flags(set), "--progress", "json", "--quiet"]
    if out is not None:
        words += ["--out", os.fspath(out)]
    if resume:
        words.append("--resume")
    if base is not None:
        words += ["--base", os.fspath(base)]
    if threads is not None:
        words += ["--threads", str(threads)]
    if device is not None:
        words += ["--device", device]
    listener = _Listener(progress, on_round, on_evaluation, on_event)
    try:
        events = lines_of(words, listener)
    finally:
        listener.bar.close()
    return Run(next(event["run"] for event in events if event["event"] == "done"))
