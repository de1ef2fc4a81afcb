"""Files of rows for the program: rows of Python and of tables, written as JSON lines where a config names files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pathlib
import re
import uuid
from types import TracebackType
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Tuple, Type, Union

from ._json_rows import bad_rows, json_lines
from ._paths import local_path
from ._table_files import kind_of, rows_of_file, split_folders
from ._tables import Placed, holds_rows, is_path, rows_of, splits_of
from .errors import EvenkeelError

__all__ = ["RowFiles", "Rows", "called", "manifest_names", "names_folder", "settings_with_data", "temporary_file", "without_rows", "written_rows"]

Rows = Any
"""A data frame, a data set, a table of Arrow, a list of dicts, a dict of columns, a path of a table or of JSON, or a list of paths."""

Identity = Tuple[int, int]
"""Device and inode of a file, by which the program too knows a file that is named twice (src/data/file_identity.h)."""

ROW_KEY = r"data\.files\.(.+\.)?(train|test)|clients\.client\.(data|test)"
"""Keys of a config that name files of rows."""
FOLDER = "rows"
"""In a run folder or the folder of a study; the program takes a folder that holds nothing else for an empty one."""
DATA_FOLDER = "$EVENKEEL_DATA/"
"""The only variable that the program replaces in paths, at their start."""
DIGITS = 12
"""Hexadecimal digits of the SHA-256 in a file's name."""


def settings_with_data(data: Optional[Rows], test_data: Optional[Rows], settings: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """data_settings(), then the settings of a caller. Raises TypeError when both name the same files."""
    own = data_settings(data, test_data)
    named: List[str] = []
    changed_rows(settings or {}, lambda _, key: named.append(key))
    for key in named:
        if key in own:
            raise TypeError(f"{called(data)[key]} and {key} of set are the same rows: give one of them")
    return {**own, **(settings or {})}


def data_settings(data: Optional[Rows], test_data: Optional[Rows]) -> Dict[str, Any]:
    """The keys of a config that train on `data`, and score what is trained on `test_data`.

    A DatasetDict, or its folder, is its splits `train` and `test`. Raises EvenkeelError for one with others.
    """
    if data is None:
        if test_data is not None:
            raise TypeError("test_data goes with data; the test rows of a config's own files are set={'data.files.test': rows}")
        return {}
    for who, rows in (("data", data), ("test_data", test_data)):
        if isinstance(rows, (list, tuple)) and not rows:
            raise bad_rows(f"{who} has no rows")
    splits = splits_of(data) or (split_folders(local_path(data)) if is_path(data) else None)
    if splits is not None:
        data, test_data = _of_splits(splits, test_data)
    settings: Dict[str, Any] = {"data.task": "files", "evaluate.tasks": ["files"], "data.files.train": data}
    return settings if test_data is None else {**settings, "data.files.test": test_data}


def called(data: Optional[Rows]) -> Dict[str, str]:
    """What messages call the keys of data_settings()."""
    return {} if data is None else {"data.files.train": "data", "data.files.test": "test_data"}


def _of_splits(splits: Mapping[str, Any], test_data: Optional[Rows]) -> Any:
    others = sorted(set(splits) - {"train", "test"})
    if "train" not in splits or others or ("test" in splits and test_data is not None):
        raise bad_rows(f"data has the splits {', '.join(splits)}, allowed: train, and test in the place of test_data; "
                       "name the splits, as in data=rows['train'], test_data=rows['validation']")
    return splits["train"], splits.get("test", test_data)


def written_rows(source: Rows, columns: Optional[Mapping[str, Any]], out: pathlib.Path, who: str) -> str:
    """Writes the rows of an object or a path into the file `out` and returns the SHA-256 of its bytes. Raises as json_lines()."""
    digest = hashlib.sha256()
    with open(out, "wb") as file:
        for line in json_lines(_rows(source, who), columns, who):
            file.write(line)
            digest.update(line)
    if not out.stat().st_size:
        raise bad_rows(f"{who} has no rows")
    return digest.hexdigest()


def temporary_file(file: pathlib.Path) -> pathlib.Path:
    """A name for the file while it is written, another one at each call."""
    return file.with_name(f"{file.name}.part-{uuid.uuid4().hex[:8]}")


def _rows(source: Rows, who: str) -> Placed:
    return rows_of_file(local_path(source)) if is_path(source) else rows_of(source, who)


def changed_rows(table: Mapping[str, Any], change: Callable[[Any, str], Any], above: str = "") -> Dict[str, Any]:
    """A config, or a part of one below the key `above`, with change(value, key) under every key that names files of rows."""
    return {name: _changed(value, change, f"{above}.{name}" if above else str(name)) for name, value in table.items()}


def _changed(value: Any, change: Callable[[Any, str], Any], key: str) -> Any:
    if re.fullmatch(ROW_KEY, key):
        return change(value, key)
    if key == "clients.client" and isinstance(value, (list, tuple)):
        return [changed_rows(entry, change, key) if isinstance(entry, Mapping) else entry for entry in value]
    return changed_rows(value, change, key) if isinstance(value, Mapping) else value


def without_rows(config: Mapping[str, Any]) -> Dict[str, Any]:
    """A config with the name of a file in the place of rows."""
    return changed_rows(config, lambda value, key: ["rows.jsonl"] if holds_rows(value) else value)


class RowFiles:
    """Writes rows into the folder `rows` of a run, a study or an evaluation, each file under the hash of its content.

    Use it as a context manager: what it wrote is removed when the block fails and nothing in the folder names the file.
    """

    def __init__(self, out: Union[pathlib.Path, Callable[[], pathlib.Path]], columns: Optional[Mapping[str, Any]],
                 keeps: Callable[[pathlib.Path, pathlib.Path], bool] = lambda out, file: False, called: Mapping[str, str] = {}) -> None:
        """out: the folder, or a function that finds it when there are rows to write. keeps: true for a file that `out` has use for.
        called: names of keys in messages."""
        self._out, self.columns, self.keeps, self.called = out, columns, keeps, called
        self.wrote: Dict[pathlib.Path, str] = {}
        self.made: List[pathlib.Path] = []
        self.asked = False

    @property
    def out(self) -> pathlib.Path:
        if callable(self._out):
            self._out = self._out()
        return self._out

    def __enter__(self) -> RowFiles:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if kind is None:
            return
        gone = self._withdraw()
        if isinstance(error, EvenkeelError) and any(str(file) in str(error) for file in gone):
            raise EvenkeelError(_in_rows(str(error), gone), error.exit_code, error.kind) from None

    def settings_of(self, settings: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
        """The settings with files in the place of rows, and of tables in files. Other values stay as they are."""
        return changed_rows(settings or {}, self._of_key)

    def files_of(self, source: Rows, name: str, who: str) -> Any:
        """The paths of files with these rows. A path that the program reads by itself stays as it is."""
        if holds_rows(source):
            return [str(self._write(source, name, who))]
        listed: Dict[Identity, pathlib.Path] = {}
        if isinstance(source, (list, tuple)):
            return [path for entry in source for path in self._files_of_path(entry, who, listed)]
        return self._files_of_path(source, who, listed) if is_path(source) else source

    def has_written(self, file: str) -> bool:
        return pathlib.Path(file) in self.wrote

    def pattern(self) -> str:
        """A pattern of all files that were written."""
        return str(self.out / FOLDER / "*.jsonl")

    def check_used(self) -> None:
        """Raises TypeError when there are columns to rename, but no rows."""
        if self.columns and not self.asked:
            raise TypeError("columns goes with rows: data, test_data, or data.files.train and the like in set")

    def _of_key(self, value: Any, key: str) -> Any:
        return self.files_of(value, re.sub(r"[^A-Za-z0-9_-]+", "-", re.sub(r"^data\.files\.|^clients\.", "", key)), self.called.get(key, key))

    def _files_of_path(self, path: Any, who: str, listed: Dict[Identity, pathlib.Path]) -> List[str]:
        """The files of a path or pattern, where one of them is a table or has columns to rename.

        listed: as of _written().
        """
        files = _matches(path)
        are_tables = [file.exists() and (bool(self.columns) or kind_of(file) not in ("json", "")) for file in files]
        if any(file.is_dir() and split_folders(file) for file in files):
            rows_of_file(files[0])  # which names the splits
        if not any(are_tables):
            if self.columns:
                raise bad_rows(f"{who} is {os.fspath(path)}, which is no file: columns renames the keys of files on this machine")
            return [os.fspath(path)]
        return [str(self._written(file, listed) if is_table else file) for file, is_table in zip(files, are_tables)]

    def _written(self, table: pathlib.Path, listed: Dict[Identity, pathlib.Path]) -> pathlib.Path:
        """The file with the rows of a table, which is written once where a list has several paths of it, as by links.

        listed: the tables of the list so far, each with the file that has its rows.
        """
        identity = _identity_of(table)
        if identity not in listed:
            listed[identity] = self._write(table, table.stem, str(table), listed.values())
        return listed[identity]

    def _write(self, source: Rows, name: str, who: str, taken: Collection[pathlib.Path] = ()) -> pathlib.Path:
        self.asked = True
        folder = self.out / FOLDER
        if not _may_hold_rows(self.out):
            return folder / f"{name}.jsonl"  # the program says why the folder is none to write into
        try:
            self._make(folder)
            return self._named(source, name, who, folder, taken)
        except OSError as error:
            raise EvenkeelError(f"[io] {error.filename or folder}: {error.strerror}", 1, "io") from None

    def _named(self, source: Rows, name: str, who: str, folder: pathlib.Path,
               taken: Collection[pathlib.Path]) -> pathlib.Path:
        """Writes the rows under a temporary name, then under that of their content.

        taken: the files of other tables of the list. Equal tables of one name are two files, so that the program tells
        of the copy.
        """
        part = temporary_file(folder / name)
        try:
            digest = written_rows(source, self.columns, part, who)
            file, number = folder / f"{name}-{digest[:DIGITS]}.jsonl", 1
            while file in taken:
                number += 1
                file = folder / f"{name}-{number}-{digest[:DIGITS]}.jsonl"
            if not file.exists():
                os.replace(part, file)
                self.wrote[file] = who
            return file
        finally:
            part.unlink(missing_ok=True)

    def _make(self, folder: pathlib.Path) -> None:
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        folder.mkdir(parents=True, exist_ok=True)
        self.made += missing

    def _withdraw(self) -> Dict[pathlib.Path, str]:
        """Removes the files that `out` has no use for, and returns them."""
        gone = {file: who for file, who in self.wrote.items() if not self.keeps(self.out, file)}
        for file in gone:
            file.unlink(missing_ok=True)
        for folder in self.made:
            try:
                folder.rmdir()
            except OSError:  # it is not empty, or gone
                pass
        return gone


def _in_rows(message: str, gone: Mapping[pathlib.Path, str]) -> str:
    """A message about lines of files that are removed, as one about the rows that they were written from."""
    for file, who in gone.items():
        message = re.sub(re.escape(str(file)) + r":(\d+)", lambda line: f"{who} row {int(line[1]) - 1}", message)
        message = message.replace(str(file), who)
    return message


def _identity_of(file: pathlib.Path) -> Identity:
    """What all paths of a file have in common. A path without its ".." may name another file."""
    try:
        status = os.stat(file)
    except OSError as error:
        raise EvenkeelError(f"[io] {file}: {error.strerror}", 1, "io") from None
    return status.st_dev, status.st_ino


def _matches(path: Any) -> List[pathlib.Path]:
    """The files of a path or pattern, by name; the path itself when there are none."""
    named = os.fspath(path)
    text = os.fspath(local_path(os.path.expandvars(named) if named.startswith(DATA_FOLDER) else named))
    found = [] if os.path.exists(text) else sorted(glob.glob(text))
    return [pathlib.Path(file) for file in found or [text]]


def names_folder(path: Any) -> bool:
    """True for a path of a folder. Of an address (hf://, builtin:) a name that does not end as a file of rows does is one."""
    text = os.fspath(path)
    if text.startswith(("hf://", "builtin:")):
        return not text.endswith((".json", ".jsonl"))
    return _matches(path)[0].is_dir()


def _may_hold_rows(out: pathlib.Path) -> bool:
    """True for a folder that is new, began, or is a run's or a study's."""
    if not out.exists():
        return True
    names = {entry.name for entry in out.iterdir()} if out.is_dir() else {""}
    return not names - {FOLDER, ".lock"} or not names.isdisjoint({".unfinished", "manifest.json", "study.json"})


def manifest_names(out: pathlib.Path, file: pathlib.Path) -> bool:
    """True if the run in `out` has the file among its inputs."""
    try:
        manifest = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
        return any(entry["path"] == str(file) for entry in manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
