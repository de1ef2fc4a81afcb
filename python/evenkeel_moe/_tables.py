"""Rows of objects: data frames, data sets, tables of Arrow, dicts of columns and lists of dicts."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._json_rows import Row, as_row, bad_rows, unique_names

__all__ = ["Placed", "holds_rows", "is_path", "rows_of", "rows_of_batches", "splits_of"]

Placed = Iterator[Tuple[str, Row]]
"""Rows, each with the name of its place for messages."""

ALLOWED = ("a data frame, a data set of datasets, a table of pyarrow, a list of dicts, a dict of columns, or a path of a JSON, Parquet, CSV, TSV "
           "or Arrow file")
ROWS_AT_ONCE = 1000
"""Rows of an Arrow table that are Python objects at a time."""


def is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))


def _is_table(value: Any) -> bool:
    """True for a data frame, a data set or a table of Arrow."""
    return any(hasattr(value, name) for name in ("with_format", "itertuples", "iter_rows", "to_batches", "read_next_batch"))


def splits_of(source: Any) -> Optional[Dict[str, Any]]:
    """The tables of a DatasetDict, or of another dict of tables, by the names of their splits; None for anything else."""
    is_dict = isinstance(source, Mapping) and len(source) > 0 and all(map(_is_table, source.values()))
    return {str(name): entry for name, entry in source.items()} if is_dict else None


def holds_rows(value: Any) -> bool:
    """True for what can only be rows, and no value of a config that lists files."""
    if is_path(value) or isinstance(value, (bool, int, float, bytes)) or value is None:
        return False
    if isinstance(value, (list, tuple)):
        return bool(value) and not all(is_path(entry) for entry in value)
    return True


def rows_of(source: Any, who: str) -> Placed:
    """The rows of an object, not of a path. Raises EvenkeelError and TypeError that begin with `who`."""
    splits = splits_of(source)
    if splits is not None:
        raise bad_rows(f"{who} is a {type(source).__name__} with the splits {', '.join(splits)}: give one of them, as rows[{next(iter(splits))!r}]")
    if isinstance(source, Mapping):
        return _of_columns(source, who)
    if hasattr(source, "itertuples") and hasattr(source, "index"):
        return _of_pandas(source, who)
    if hasattr(source, "iter_rows"):
        return _of_dicts(source.iter_rows(named=True), who)  # of polars
    if hasattr(source, "to_batches"):
        return rows_of_batches(source.to_batches(max_chunksize=ROWS_AT_ONCE), who)
    if hasattr(source, "read_next_batch"):
        return rows_of_batches(source, who)
    if hasattr(source, "to_pylist") and hasattr(source, "schema"):
        return rows_of_batches([source], who)
    if hasattr(source, "with_format") and hasattr(source, "features"):
        return _of_dataset(source, who)
    return _of_others(source, who)


def _of_others(source: Any, who: str) -> Placed:
    name = type(source).__name__
    if hasattr(source, "collect"):
        raise TypeError(f"{who} is a {name}, allowed: {ALLOWED}; give rows.collect()")
    if isinstance(source, (str, bytes)) or not (hasattr(source, "__iter__") or hasattr(source, "__getitem__")):
        raise TypeError(f"{who} is of type {name}, allowed: {ALLOWED}")
    return _of_dicts(source if hasattr(source, "__iter__") else (source[number] for number in range(len(source))), who)


def _of_dicts(rows: Iterable[Any], who: str) -> Placed:
    for number, row in enumerate(rows):
        place = f"{who} row {number}"
        yield place, as_row(row, place)


def _zipped(names: Sequence[str], columns: Sequence[Iterable[Any]], who: str) -> Placed:
    for number, values in enumerate(zip(*columns)):
        yield f"{who} row {number}", dict(zip(names, values))


def _of_columns(columns: Mapping[Any, Any], who: str) -> Placed:
    names = unique_names(columns, who)
    for name, column in zip(names, columns.values()):
        if isinstance(column, (str, bytes, Mapping)) or _is_table(column) or not hasattr(column, "__len__"):
            raise bad_rows(f"{who}: the column {name} is of type {type(column).__name__}, allowed: a list with the value of every row; "
                           "a single row is a list of one dict")
    lengths = {name: len(column) for name, column in zip(names, columns.values())}
    if len(set(lengths.values())) > 1:
        raise bad_rows(f"{who}: its columns are not equally long: {', '.join(f'{name} {length}' for name, length in lengths.items())}")
    return _zipped(names, list(columns.values()), who)


def _of_pandas(frame: Any, who: str) -> Placed:
    """The columns of a data frame, after the levels of its index that have a name, as Arrow takes them."""
    if getattr(frame.columns, "nlevels", 1) > 1:
        raise bad_rows(f"{who}: the data frame has columns of several levels, allowed: one; join their names first")
    levels = [level for level, name in enumerate(frame.index.names) if name is not None]
    names = unique_names([*(frame.index.names[level] for level in levels), *frame.columns], who)
    columns = [*(frame.index.get_level_values(level) for level in levels), *(frame.iloc[:, number] for number in range(frame.shape[1]))]
    return _zipped(names, columns, who)


def _of_dataset(dataset: Any, who: str) -> Placed:
    """The stored values of a data set, whatever its format shows. A stream without Arrow's format shows its own values."""
    try:
        batches = dataset.with_format("arrow").iter(batch_size=ROWS_AT_ONCE)
    except (AttributeError, NotImplementedError, ValueError):
        return _of_dicts(dataset, who)
    return rows_of_batches(batches, who)


def rows_of_batches(batches: Iterable[Any], who: str) -> Placed:
    """The rows of Arrow's tables or record batches. Raises EvenkeelError for columns of one name, and for values that Python has not."""
    number = 0
    for batch in batches:
        unique_names(batch.schema.names, who)
        for row in _as_python(batch, f"{who} row {number}"):
            yield f"{who} row {number}", row
            number += 1


def _as_python(batch: Any, place: str) -> List[Dict[str, Any]]:
    try:
        rows: List[Dict[str, Any]] = batch.to_pylist()
        return rows
    except (ValueError, OverflowError, UnicodeDecodeError) as error:
        raise bad_rows(f"{place} or one of the {batch.num_rows - 1} after it: {error}") from None
