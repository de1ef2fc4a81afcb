"""Records: lists of dicts that become data frames."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Dict, List

from .errors import MissingPackage

if TYPE_CHECKING:
    import pandas

__all__ = ["Records"]

SHOWN = 50


class Records(List[Dict[str, Any]]):
    """A list of dicts, one per record, with the keys of the program's own JSON lines."""

    def frame(self) -> pandas.DataFrame:
        """A pandas data frame with a row per record and a column per value. Lists are left out; {"a": {"b": 1}} is the column "a.b"."""
        try:
            import pandas
        except ImportError:
            raise MissingPackage("a data frame", "pandas", "frames") from None
        return pandas.DataFrame(self.flat())

    def flat(self) -> List[Dict[str, Any]]:
        """The same as plain dicts of numbers, texts and truth values."""
        return [_flat(record) for record in self]

    def _repr_html_(self) -> str:
        rows = self.flat()[:SHOWN]
        columns = list(dict.fromkeys(key for row in rows for key in row))
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(str(row.get(column, '')))}</td>" for column in columns) + "</tr>" for row in rows)
        left = f"<p>{len(self) - SHOWN} more</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{left}"


def _flat(record: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list) and key not in ("checksum", "event"):
            flat[prefix + key] = value
    return flat
