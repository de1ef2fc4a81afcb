"""A run folder, read."""

from __future__ import annotations

import html
import json
import os
import pathlib
import tempfile
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence

from ._paths import PathLike, local_path
from ._process import run_program
from ._toml import flat_keys, read_toml
from .errors import EvenkeelError, MissingPackage
from .records import Records, selected_scores

if TYPE_CHECKING:
    import numpy
    import pandas

__all__ = ["Report", "Run"]


class Report:
    """A page of charts. A notebook shows it; `html` is the page, which opens offline."""

    def __init__(self, page: str, title: str, folders: Sequence[PathLike]) -> None:
        self.html = page
        self.title = title
        self._folders = folders

    def save(self, path: PathLike) -> pathlib.Path:
        """Writes the page and returns its path. Raises EvenkeelError where it cannot, as over a run's own files.

        Runs that were removed or moved since the page was made are not needed.
        """
        file = local_path(path)
        there = [folder for folder in self._folders if _holds_records(local_path(folder))]
        if there:
            # The program checks the path; the run may have gone on since this page was made. With --format html it
            # takes a study whose runs are gone.
            _write_page(there, file, "--format", "html")
        try:
            file.write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise EvenkeelError(f"[io] {file}: {error.strerror}", 1, "io") from None
        return file

    def _repr_html_(self) -> str:
        return (f'<iframe title="{html.escape(self.title, quote=True)}" srcdoc="{html.escape(self.html, quote=True)}" '
                'style="width:100%;height:48em;border:0"></iframe>')

    def __repr__(self) -> str:
        return f"<report of {self.title}: {len(self.html)} characters of HTML>"


def _write_page(folders: Sequence[PathLike], file: pathlib.Path, *flags: str) -> None:
    names = [os.fspath(folder) for folder in folders]
    run_program(["report", *names, "--html", str(file), "--quiet", *flags], lambda _: None)


def _holds_records(folder: pathlib.Path) -> bool:
    """True for a folder of a run or a study."""
    return any((folder / name).is_file() for name in ("manifest.json", "study.json"))


def report_page(folders: Sequence[PathLike]) -> Report:
    """The page of `evenkeel report`. Raises EvenkeelError."""
    names = [os.fspath(folder) for folder in folders]
    with tempfile.TemporaryDirectory(prefix="evenkeel-") as folder:
        page = pathlib.Path(folder) / "page.html"
        _write_page(names, page)
        return Report(page.read_text(encoding="utf-8"), ", ".join(names), [local_path(name) for name in names])


def _records(file: pathlib.Path) -> Records:
    """The lines of a file. A last line without an end is still being written."""
    if not file.exists():
        return Records()
    text = file.read_text(encoding="utf-8")
    return Records(json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines())


class Run:
    """A folder that `train` wrote. It is read anew at every call, so a run that goes on can be watched."""

    def __init__(self, path: PathLike) -> None:
        """Raises EvenkeelError when the folder holds no run."""
        self.path = local_path(path)
        if not (self.path / "manifest.json").is_file():
            raise EvenkeelError(f"{self.path} holds no run: manifest.json is missing", 1, "io")

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def config(self) -> Dict[str, Any]:
        """The settled config: every key with its value."""
        return read_toml(self.path / "config.toml")

    @property
    def manifest(self) -> Dict[str, Any]:
        """Versions, machine, files with hashes, and the command that began the run."""
        manifest: Dict[str, Any] = json.loads((self.path / "manifest.json").read_text(encoding="utf-8"))
        return manifest

    def rounds_list(self) -> Records:
        """The lines of rounds.jsonl."""
        return _records(self.path / "rounds.jsonl")

    def clients_list(self) -> Records:
        """A record per round and client: the entries "clients" of rounds.jsonl."""
        return Records({"round": record["round"], **client} for record in self.rounds_list() for client in record["clients"])

    def evaluations_list(self, served_by: str = "run", rank_eval_mode: Optional[str] = None, clients: bool = False) -> Records:
        """Lines of evaluations.jsonl: of every round, task and budget the score of the run itself.

        served_by: "transformers" or "native_gates": the scores of the exported adapter as these programs route, which a run has if they
        route otherwise than it does; "all": every line. rank_eval_mode: of rank methods "a" (the adapter cut to the rank, all experts),
        "b" (the whole adapter, the budget's experts) or "all"; None: "b", or "a" if the run has no other. clients: the scores of single
        clients, of evaluate.per_client. Raises ValueError for other values.
        """
        return selected_scores(_records(self.path / "evaluations.jsonl"), served_by, rank_eval_mode, clients)

    @property
    def rounds(self) -> pandas.DataFrame:
        """A row per round. Needs pandas; rounds_list() does not."""
        return self.rounds_list().frame()

    @property
    def clients(self) -> pandas.DataFrame:
        """A row per round and client. Needs pandas; clients_list() does not."""
        return self.clients_list().frame()

    @property
    def evaluations(self) -> pandas.DataFrame:
        """A row per round, task and budget: the run's own scores, evaluations_list(). Needs pandas; evaluations_list() does not."""
        return self.evaluations_list().frame()

    def adapter(self) -> Dict[str, numpy.ndarray[Any, Any]]:
        """The global adapter after the last committed round: PEFT's name -> array, [r, in] of lora_A and [out, r] of lora_B.

        Needs numpy and safetensors.
        """
        try:
            from safetensors.numpy import load_file
        except ImportError:
            raise MissingPackage("an adapter's tensors", "safetensors", "tensors") from None
        tensors: Dict[str, numpy.ndarray[Any, Any]] = load_file(self.path / "adapter" / "adapter_model.safetensors")
        return tensors

    def report(self, *others: PathLike) -> Report:
        """The page with all charts of this run, and of others beside it."""
        return report_page([self, *others])

    def resume(self, rounds: Optional[int] = None, *, set: Optional[Mapping[str, Any]] = None, **options: Any) -> Run:
        """Goes on from the last committed round, to `rounds` in all when that is given. `set` and `options` are those of train().

        The run reads the files that it began with, from every working folder. base="FOLDER" names a base model that was moved.
        """
        from .training import train

        settings = {**(set or {})}
        if rounds is not None:
            if "train.rounds" in flat_keys(settings):
                raise TypeError("rounds and train.rounds of set are the same key: give one of them")
            settings["train.rounds"] = rounds
        return train(self.path / "config.toml", set=settings, out=self.path, resume=True, **options)
