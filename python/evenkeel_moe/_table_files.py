"""Rows of files: JSON, JSON lines, CSV, TSV, Parquet, Arrow, and folders of datasets.save_to_disk()."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import itertools
import json
import pathlib
import threading
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

from ._json_rows import as_row, bad_rows, unique_names
from ._tables import ROWS_AT_ONCE, Placed, rows_of, rows_of_batches
from .errors import EvenkeelError, MissingPackage

__all__ = ["kind_of", "rows_of_file", "split_folders"]

HEAD = 4096
"""Bytes in which the kind of a file shows."""
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"FEA1": "feather", b"\xff\xff\xff\xff": "stream"}
UTF16 = (b"\xff\xfe", b"\xfe\xff")
SEPARATORS = {".tsv": "\t", ".csv": ","}
LONGEST_CELL = 1 << 24
"""Characters, as the program's longest line."""


def split_folders(path: pathlib.Path) -> Optional[Dict[str, pathlib.Path]]:
    """The folders of the splits that DatasetDict.save_to_disk() wrote, by name; None for any other path."""
    listing = path / "dataset_dict.json"
    return {name: path / name for name in _json_of(listing)["splits"]} if listing.is_file() else None


def kind_of(path: pathlib.Path) -> str:
    """parquet, arrow, feather, stream, saved (a folder), separated (CSV, TSV), json; "" for a file of another kind.

    Raises EvenkeelError when the file cannot be read.
    """
    if path.is_dir():
        return "saved" if (path / "state.json").is_file() and (path / "dataset_info.json").is_file() else ""
    with _opened(path) as file:
        head = file.read(HEAD)
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    return _kind_of_text(head, path)


def _kind_of_text(head: bytes, path: pathlib.Path) -> str:
    """Text with an object or a list at its start is JSON; else a separator in its first line makes it a table, as the program takes it."""
    text = head.decode("utf-16" if head[:2] in UTF16 else "utf-8-sig", errors="replace").lstrip(" \t\r\n")
    if text[:1] in ("{", "["):
        return "json" if not text.startswith("{'") else ""
    if not text or text[0] == "<" or "\0" in text or "\n{" in text:
        return ""
    return "separated" if path.suffix in SEPARATORS or any(separator in text.split("\n")[0] for separator in "\t;,") else ""


def rows_of_file(path: pathlib.Path) -> Placed:
    """The rows of a file or folder. Raises EvenkeelError naming file and line, and MissingPackage without pyarrow."""
    splits = split_folders(path)
    if splits is not None:
        raise bad_rows(f"{path} has the splits {', '.join(splits)}: name one of their folders, as {next(iter(splits.values()), path)}")
    kind = kind_of(path)
    if kind == "separated":
        return _separated(path)
    if kind == "json":
        return _json_rows(path)
    if kind in _OF_ARROW:
        return rows_of_batches(_checked(_OF_ARROW[kind](path), path), str(path))
    raise bad_rows(f"{path} has no rows that can be read, allowed: a JSON, Parquet, CSV, TSV or Arrow file, or a folder of datasets.save_to_disk()")


def _opened(path: pathlib.Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise EvenkeelError(f"[io] {path}: {error.strerror}", 1, "io") from None


# --- CSV, TSV ---

_readers = threading.Lock()
_limits: List[int] = []


@contextlib.contextmanager
def _long_cells() -> Iterator[None]:
    """While open, csv reads cells of LONGEST_CELL. The last of those that are open at once gives the process its own limit back."""
    with _readers:
        _limits.append(csv.field_size_limit())
        csv.field_size_limit(max(_limits[-1], LONGEST_CELL))
    try:
        yield
    finally:
        with _readers:
            before = _limits.pop()
            if not _limits:
                csv.field_size_limit(before)


def _separated(path: pathlib.Path) -> Placed:
    """Cells as they are written: no text becomes a number, and none stands for a missing value."""
    with _long_cells(), _opened(path) as file:
        encoding = "utf-16" if file.read(2) in UTF16 else "utf-8-sig"
        file.seek(0)
        text = io.TextIOWrapper(file, encoding=encoding, newline="")
        try:
            yield from _cells(text, path)
        except UnicodeDecodeError:
            raise bad_rows(f"{path} is not UTF-8: convert it, as by iconv -f latin1 -t utf-8") from None


def _cells(text: io.TextIOWrapper, path: pathlib.Path) -> Placed:
    separator = _separator_of(text.readline(), path)
    text.seek(0)
    lines = csv.reader(text, delimiter=separator, strict=True)
    try:
        names = unique_names(next(lines, []), str(path))
        for cells in lines:
            place = f"{path}:{lines.line_num}"
            if len(cells) not in (0, len(names)):
                raise bad_rows(f"{place}: the row has {len(cells)} cells, the header {len(names)}")
            if cells:
                yield place, dict(zip(names, cells))
    except csv.Error as error:
        raise bad_rows(f"{path}:{lines.line_num}: {error}") from None


def _separator_of(header: str, path: pathlib.Path) -> str:
    """The separator that makes the most columns of the header; of those, the one that the file's name says."""
    named = SEPARATORS.get(path.suffix, ",")
    return max((named, ",", "\t", ";"), key=lambda separator: len(next(csv.reader([header], delimiter=separator), [])))


# --- JSON ---

def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _json_of(path: pathlib.Path) -> Any:
    with _opened(path) as file:
        return _parsed(file.read(), str(path))


def _parsed(text: bytes, place: str) -> Any:
    def with_unique_keys(members: List[Tuple[str, Any]]) -> Dict[str, Any]:
        value = dict(members)
        if len(value) < len(members):
            keys = [key for key, _ in members]
            twice = next(key for number, key in enumerate(keys) if key in keys[:number])
            raise bad_rows(f"{place}: the key {json.dumps(twice)} stands twice in one object")
        return value

    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_no_number, object_pairs_hook=with_unique_keys)
    except ValueError as error:  # of UTF-8 too
        raise bad_rows(f"{place}: not valid JSON: {error}") from None


def _json_rows(path: pathlib.Path) -> Placed:
    """Rows of JSON lines, or of a table as one value of JSON."""
    with _opened(path) as file:
        first, second = [*itertools.islice((line for line in file if line.strip()), 2), b"", b""][:2]
    if first.lstrip(b"\xef\xbb\xbf \t").startswith(b"{") and _is_row(first, is_only=not second):
        return _lines(path)
    return rows_of(_table_of(_json_of(path), str(path)), str(path))


def _table_of(whole: Any, who: str) -> Any:
    """The rows of a list, or of an object that has them in `data`, by number, or by columns of values by number."""
    if not isinstance(whole, dict):
        return whole
    if isinstance(whole.get("data"), list):
        return whole["data"]
    if _is_numbered(whole):
        return list(whole.values())
    return _joined(whole, who)


def _joined(columns: Dict[str, Any], who: str) -> Dict[str, Any]:
    """Columns with their values as lists: of those by number in the order of the first. Raises EvenkeelError for columns with other numbers."""
    numbered = {name: column for name, column in columns.items() if _is_numbered(column)}
    first = next(iter(numbered), "")
    for name, column in numbered.items():
        missing = [number for number in {**numbered[first], **column} if number not in column or number not in numbered[first]]
        if missing:
            raise bad_rows(f"{who}: of the columns {first} and {name} only one has row {missing[0]}, allowed: every row in all columns")
    return {name: [column[number] for number in numbered[first]] if name in numbered else column for name, column in columns.items()}


def _is_row(line: bytes, is_only: bool) -> bool:
    """True for an object that does not hold all rows, as the only line of a file may. Messages are lists of objects, and no columns."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except ValueError:
        return False
    holds_all = is_only and isinstance(row, dict) and row and (isinstance(row.get("data"), list) or _is_numbered(row) or all(map(_is_column, row.values())))
    return isinstance(row, dict) and not holds_all


def _is_column(value: Any) -> bool:
    return _is_numbered(value) or (isinstance(value, list) and bool(value) and not isinstance(value[0], dict))


def _is_numbered(value: Any) -> bool:
    """True for an object whose keys are numbers of rows, as pandas writes them."""
    return isinstance(value, dict) and bool(value) and all(key.isdigit() for key in value)


def _lines(path: pathlib.Path) -> Placed:
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{path}:{number}"
                yield place, as_row(_parsed(line, place), place)


# --- Arrow ---

def _pyarrow(module: str, path: pathlib.Path) -> Any:
    try:
        return importlib.import_module(f"pyarrow.{module}")
    except ImportError:
        raise MissingPackage(f"reading {path}", "pyarrow", "tables") from None


def _checked(batches: Iterator[Any], path: pathlib.Path) -> Iterator[Any]:
    """The batches; what pyarrow says of a damaged file names the file."""
    try:
        yield from batches
    except (OSError, ValueError, EOFError) as error:  # ArrowInvalid is a ValueError
        raise bad_rows(f"{path} cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None


def _parquet(path: pathlib.Path) -> Iterator[Any]:
    with _pyarrow("parquet", path).ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=ROWS_AT_ONCE)


def _arrow(path: pathlib.Path) -> Iterator[Any]:
    with _pyarrow("ipc", path).open_file(str(path)) as file:
        for number in range(file.num_record_batches):
            yield from _parts(file.get_batch(number))


def _stream(path: pathlib.Path) -> Iterator[Any]:
    with _pyarrow("ipc", path).open_stream(str(path)) as batches:
        for batch in batches:
            yield from _parts(batch)


def _feather(path: pathlib.Path) -> Iterator[Any]:
    yield from _pyarrow("feather", path).read_table(str(path)).to_batches(max_chunksize=ROWS_AT_ONCE)


def _saved(path: pathlib.Path) -> Iterator[Any]:
    """The files that state.json of a saved data set lists, in its order."""
    for entry in _json_of(path / "state.json")["_data_files"]:
        yield from _stream(path / entry["filename"])


def _parts(batch: Any) -> Iterator[Any]:
    """A record batch in slices of few rows."""
    for begin in range(0, batch.num_rows, ROWS_AT_ONCE):
        yield batch.slice(begin, ROWS_AT_ONCE)


_OF_ARROW = {"parquet": _parquet, "arrow": _arrow, "stream": _stream, "feather": _feather, "saved": _saved}
