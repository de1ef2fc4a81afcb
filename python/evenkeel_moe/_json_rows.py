"""Rows as lines of JSON: what each value of Python, numpy, pandas and Arrow becomes."""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from .errors import EvenkeelError

__all__ = ["Row", "as_row", "bad_rows", "json_lines", "unique_names"]

Row = Mapping[str, Any]
"""A row: the value of each column."""


def bad_rows(message: str) -> EvenkeelError:
    """An error of rows: who, what arrived and what is allowed."""
    return EvenkeelError(f"[data] {message}", 1, "data")


class _NotJson(Exception):
    """A value that JSON has no form for. The arguments are the path of the value, and what it is."""


def json_lines(rows: Iterable[Tuple[str, Row]], columns: Optional[Mapping[str, Any]], who: str) -> Iterator[bytes]:
    """A line of JSON for every row.

    rows: each with the name of its place, for messages. columns: key of the line -> column that it is taken from; other columns keep
    their names. who: what holds the rows, for messages.

    NaN, NaT and NA become null. Times become ISO 8601 texts, numbers of numpy and decimals numbers, arrays lists. Raises EvenkeelError
    naming row and column for any other value that JSON does not have, and for a column of `columns` that no row has.
    """
    names = _Names(columns, who)
    for place, row in rows:
        try:
            value = {name: _json(entry, name) for name, entry in names.renamed(row, place)}
            yield (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
        except _NotJson as refused:
            raise bad_rows(f"{place}: {refused.args[0]} is {refused.args[1]}, which rows cannot hold: convert the column, or leave it out") from None
        except UnicodeEncodeError:
            raise bad_rows(f"{place}: a text has half of a surrogate pair, which UTF-8 cannot hold") from None
    names.check_found()


class _Names:
    """Which key of a line is taken from which column."""

    def __init__(self, columns: Optional[Mapping[str, Any]], who: str) -> None:
        if columns is not None and not isinstance(columns, Mapping):
            raise TypeError(f"columns is a {type(columns).__name__}, allowed: a dict as {{'prompt': 'question'}}")
        self.column_of = {str(key): str(column) for key, column in (columns or {}).items()}
        self.taken = set(self.column_of.values())
        self.who = who
        self.seen: Set[str] = set()
        self.rows = 0

    def renamed(self, row: Row, place: str) -> Iterator[Tuple[str, Any]]:
        """The keys of the row's line, each with its value."""
        self.rows += 1
        self.seen.update(row)
        for key, column in self.column_of.items():
            if column in row:
                yield key, row[column]
        for name, value in row.items():
            if name in self.taken:
                continue
            if name in self.column_of and self.column_of[name] in row:
                raise bad_rows(f"{place}: columns takes {name} from the column {self.column_of[name]}, but there is a column {name} too: "
                               f"leave that out, or give it another name, as in columns={{'other': {name!r}}}")
            yield name, value

    def check_found(self) -> None:
        """Checks that every column of `columns` was in a row."""
        for key, column in self.column_of.items():
            if self.rows and column not in self.seen:
                raise bad_rows(f"{self.who}: columns takes {key} from {column}, but the columns are {', '.join(sorted(map(str, self.seen)))}")


def _json(value: Any, path: str) -> Any:
    """The value as types of JSON. Raises _NotJson."""
    if value is None or isinstance(value, (str, bool)):
        return value
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (float, decimal.Decimal)):
        return _number(value, path)
    if isinstance(value, Mapping):
        return {_key(key, path): _json(entry, f"{path}.{key}") for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return _list(value, path)
    if isinstance(value, (datetime.date, datetime.time)):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if hasattr(value, "as_py"):  # of Arrow
        return _json(value.as_py(), path)
    if hasattr(value, "tolist"):
        return _array(value, path)
    if hasattr(value, "to_list"):  # of polars
        return _list(value.to_list(), path)
    raise _NotJson(path, f"of type {type(value).__name__}")


def _number(value: Any, path: str) -> Any:
    if value.is_nan() if isinstance(value, decimal.Decimal) else math.isnan(value):
        return None
    number = int(value) if isinstance(value, decimal.Decimal) and value.is_finite() and value == int(value) else float(value)
    if math.isinf(number):
        raise _NotJson(path, str(value))
    if isinstance(value, decimal.Decimal) and decimal.Decimal(repr(number)) != value:
        raise _NotJson(path, f"{value}, with more digits than a number of 64 bits has")
    return number


def _list(values: Iterable[Any], path: str) -> List[Any]:
    return [_json(value, f"{path}[{number}]") for number, value in enumerate(values)]


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise _NotJson(path, f"a dict with the key {key!r}, which is no text")
    return key


def _array(value: Any, path: str) -> Any:
    """Numbers and arrays of numpy, and what has its methods. A time keeps its unit: tolist() would make nanoseconds of it."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind == "M":
        return _list(value, path) if getattr(value, "ndim", 0) else (None if str(value) == "NaT" else str(value))
    if kind and kind in "mcV":
        raise _NotJson(path, f"of type {value.dtype}")
    plain = value.tolist()
    if type(plain) is type(value):
        raise _NotJson(path, f"of type {type(value).__name__}")
    return _json(plain, path)


def as_row(row: Any, place: str) -> Dict[str, Any]:
    """A row with texts as keys. Raises EvenkeelError for what is no row, and for two keys that are one text."""
    if not isinstance(row, Mapping):
        raise bad_rows(f"{place} is of type {type(row).__name__}, allowed: a dict of column and value")
    return dict(zip(unique_names(row, place), row.values()))


def unique_names(names: Iterable[Any], who: str) -> List[str]:
    """The names of columns as texts. Raises EvenkeelError for names of other types than text and int, and for names that are there twice."""
    texts: List[str] = []
    for name in names:
        if not isinstance(name, (str, int)):
            raise bad_rows(f"{who}: a column has the name {name!r}, allowed: texts")
        texts.append(str(name))
    twice = sorted({name for name in texts if texts.count(name) > 1}) if len(set(texts)) < len(texts) else []
    if twice:
        raise bad_rows(f"{who}: there are two columns {twice[0]}, rename one of them")
    return texts
