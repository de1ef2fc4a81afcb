"""Training: starts a run, or goes on with one."""

from __future__ import annotations

import os
import pathlib
from dataclasses import dataclass, fields
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Union

from ._paths import PathLike, local_path
from ._process import Event, events_of, text_of
from ._program import shared_path
from ._progress import bar_for
from ._row_files import RowFiles, Rows, called, manifest_names, settings_with_data, without_rows
from ._served import CHOICE, MethodLike, ServedMethods, chosen_settings
from ._toml import config_words, parse_toml, set_flags
from .errors import EvenkeelError, MissingPackage
from .run import Run

__all__ = ["Evaluation", "Round", "train"]

@dataclass(frozen=True)
class Round:
    """A committed round, as the event "round" tells of it. `Run.rounds` has every measure."""

    round: int
    """1 is the first."""
    rounds: int
    """Rounds of the run in all."""
    loss: Optional[float]
    """Mean loss per target token over the round's clients, natural logarithm. None: no client tells its loss."""
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
        loss = "not told" if self.loss is None else f"{self.loss:.4f}"
        return f"round {self.round}/{self.rounds}: loss {loss}, {self.tokens:,} tokens, {self.seconds:.1f} s"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A score of one task at one budget. Every value of `record` is an attribute: `evaluation.accuracy`."""

    task: str
    budget: float
    round: int
    """Rounds done; 0: before the first."""
    record: Mapping[str, Any]
    """All keys of the line of evaluations.jsonl."""

    def __getattr__(self, name: str) -> Any:
        record = self.__dict__.get("record", {})
        if name in record:
            return record[name]
        known = ", ".join(key for key in record if key not in ("event", "checksum"))
        raise AttributeError(f"this evaluation has no {name}; it has {known}")

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self.__dict__.get("record", {})]

    @property
    def served_by(self) -> str:
        """"run": as the run computes; "transformers" or "native_gates": the exported adapter as these programs compute."""
        return str(self.record.get("served_by", "run"))

    def __str__(self) -> str:
        return f"{self._what()}: {', '.join(self._measures(self.record.keys() & _FIRST)[:1]) or 'scored'}"

    def __repr__(self) -> str:
        return f"<Evaluation of {self._what()}, round {self.round}, served by {self.served_by}: {', '.join(self._measures(_MEASURES))}>"

    def _what(self) -> str:
        top_k, mode, client = (self.record.get(key) for key in ("top_k", "rank_eval_mode", "client"))
        parts = [f"{self.task} at budget {self.budget:g}", f"K = {top_k}" if top_k else "", f"mode {mode}" if mode else "",
                 f"client {client}" if client is not None else ""]
        return ", ".join(part for part in parts if part)

    def _measures(self, names: Iterable[str]) -> List[str]:
        return [f"{name} {self.record[name]:.4f}" for name in _MEASURES if name in names and self.record.get(name) is not None]


_MEASURES = ("accuracy", "accuracy_likelihood", "log_likelihood", "invalid_rate", "f1", "exact_match", "bert_score", "nll")
_FIRST = frozenset({"accuracy", "f1", "nll"})


class _Listener:
    """Calls the callbacks with what the events say."""

    def __init__(self, progress: Optional[bool], on_round: Optional[Callable[[Round], Any]],
                 on_evaluation: Optional[Callable[[Evaluation], Any]], on_event: Optional[Callable[[Event], Any]]) -> None:
        self.bar = bar_for(progress)
        self.on_round, self.on_evaluation, self.on_event = on_round, on_evaluation, on_event
        self.rank_eval_modes: Sequence[str] = ()

    def __call__(self, event: Event) -> None:
        self.bar.take(event)
        kind = event["event"]
        if self.on_round is not None and kind == "round":
            self.on_round(Round(**{field.name: event[field.name] for field in fields(Round)}))
        if kind == "run":
            self.rank_eval_modes = event.get("rank_eval_modes", ())
        if self.on_evaluation is not None and kind == "evaluation" and self._is_own(event):
            self.on_evaluation(Evaluation(event["task"], event["budget"], event.get("round", 0), event))
        if self.on_event is not None:
            self.on_event(event)

    def _is_own(self, event: Event) -> bool:
        """True for the scores that Run.evaluations has: in mode "a" only if the run has no mode "b"."""
        is_second = event.get("rank_eval_mode") == "a" and "b" in self.rank_eval_modes
        return "served_by" not in event and "client" not in event and not is_second


def _words_of(config: Union[PathLike, Mapping[str, Any]], settings: Mapping[str, Any], method: Sequence[str]) -> List[str]:
    """The words that stand for a config with settings: a file, one of that name that ships with the program, or the keys of a dict.

    method: the flags that name a method in Python. It replaces that of a dict, as of a file.
    """
    if isinstance(config, Mapping):
        return [*config_words(config, [CHOICE] if method else []), *set_flags(settings), *method]
    path = pathlib.Path(config)
    shipped = None if path.is_absolute() or path.exists() else shared_path(path.as_posix())
    return [str(shipped or path), *set_flags(settings), *method]


def _folder_of(config: Union[PathLike, Mapping[str, Any]], settings: Mapping[str, Any], method: Sequence[str]) -> pathlib.Path:
    """The folder that a run gets by its config. Raises EvenkeelError as train()."""
    words = _words_of(without_rows(config) if isinstance(config, Mapping) else config, without_rows(settings), method)
    text = text_of(["train", *words, "--print-config", "--quiet"])
    try:
        whole = parse_toml(text)
    except MissingPackage:
        raise MissingPackage("writing rows without out, which names the run folder,", "tomli", "toml") from None
    return local_path(whole["output"]["dir"] or pathlib.Path("runs") / whole["name"])


def train(config: Union[PathLike, Mapping[str, Any]], *, data: Optional[Rows] = None, test_data: Optional[Rows] = None,
          columns: Optional[Mapping[str, Any]] = None, set: Optional[Mapping[str, Any]] = None, out: Optional[PathLike] = None, resume: bool = False,
          method: Optional[MethodLike] = None, changed_method: bool = False, base: Optional[PathLike] = None, threads: Optional[int] = None,
          device: Optional[str] = None, progress: Optional[bool] = None,
          on_round: Optional[Callable[[Round], Any]] = None, on_evaluation: Optional[Callable[[Evaluation], Any]] = None,
          on_event: Optional[Callable[[Event], Any]] = None) -> Run:
    """Runs federated fine-tuning as a TOML file says, and returns the run.

    config: the file, or one that ships with the program, as in "configs/demo.toml"; or the keys as a dict, nested as in a file.
    data, test_data: rows of your own, to train on and to score on: a data frame, a datasets.Dataset, a table of Arrow, a list of dicts, a
    dict of columns, or paths of JSON, Parquet, CSV, TSV or Arrow. A DatasetDict is its splits train and test. They are data.files.train and
    data.files.test (without test_data the config's, or a part of `data` by data.files.held_out); data.task and evaluate.tasks become
    "files", where `set` does not say otherwise. The keys of files take the same rows in `set` and in a dict.
    columns: {"prompt": "question"}: the key that the program reads (docs/your-data.md) -> the column of all rows that it is taken from.
    Rows of Python and of tables are written into `out`/rows as JSON lines, and the run keeps their hash.
    set: keys to change, {"method.name": "fedit", "train.rounds": 3}. {"train": {"rounds": 3}}, nested, changes the same key alone.
    out: the run folder, new or empty; None: runs/<name of the config>.
    resume: resume from the last committed round in `out`. The result has the bits of a run that was never stopped.
    method: a method in Python: a class of ek.Method, whose hooks then run in this process, an object of one with options,
    ServerMomentum(momentum=0.5), or "FILE.py:CLASS", which gets a process of its own. It replaces method.name of the config. What a hook
    raises is the cause of the error here.
    changed_method: with resume: go on although the source of the method has changed.
    base: with resume, the folder that the run's base model was moved to.
    progress: a progress bar; None: only in a terminal or a notebook.
    on_round, on_evaluation: called after every round and every score of the run itself, those of Run.evaluations. on_event: called with
    every event of docs/json-lines.md, so also with the scores of the exported adapter, of single clients and of the other rank evaluation
    mode. What a callback raises stops the run cleanly and is raised here.

    Raises EvenkeelError with the program's line. Ctrl-C stops the program, which saves its state, and raises
    KeyboardInterrupt after that; `Run(out).resume()` goes on. Callbacks run in the calling thread.
    """
    settings = settings_with_data(data, test_data, chosen_settings(method, set))
    with ServedMethods([method]) as served, \
            RowFiles((lambda: _folder_of(config, settings, served.words)) if out is None else local_path(out), columns, manifest_names,
                     called(data)) as rows:
        words = _words_of(rows.settings_of(config) if isinstance(config, Mapping) else config, rows.settings_of(settings), served.words)
        rows.check_used()
        words += ["--changed-method"] if changed_method else []
        return _train(words, out, resume, base, threads, device, _Listener(progress, on_round, on_evaluation, on_event))


def _train(words: Sequence[str], out: Optional[PathLike], resume: bool, base: Optional[PathLike], threads: Optional[int],
           device: Optional[str], listener: _Listener) -> Run:
    """Runs the program with the words of a config, and returns the run."""
    words = ["train", *words, "--progress", "json", "--quiet"]
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
    try:
        done = events_of(words, listener, {"done"})
    finally:
        listener.bar.close()
    if not done:
        raise EvenkeelError("the program ended without its last event", 2, "internal")
    return Run(done[-1]["run"])
