"""Records: lists of dicts that become data frames."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

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


def selected_scores(records: Records, served_by: str, rank_eval_mode: Optional[str], clients: bool = False) -> Records:
    """The scores of one way of serving and one rank evaluation mode, so that no column mixes them.

    served_by: "run", "transformers", "native_gates", or "all". rank_eval_mode: "a", "b" or "all"; None: "b" (as many
    experts per token as other methods), else "a". clients: the scores of single clients instead of those of the global adapter. Records
    without served_by are the run's.
    """
    for name, value, allowed in (("served_by", served_by, ("run", "transformers", "native_gates", "all")),
                                 ("rank_eval_mode", rank_eval_mode, ("a", "b", "all", None))):
        if value not in allowed:
            raise ValueError(f"{name} is {value!r}, allowed: {', '.join(map(repr, allowed))}")
    kept = [record for record in records
            if served_by in ("all", record.get("served_by", "run")) and ("client" in record) == clients]
    in_both = {_place(record) for record in kept if _mode(record) == "b"}

    def is_asked(record: Dict[str, Any]) -> bool:
        mode = _mode(record)
        if rank_eval_mode is None:
            return mode != "a" or _place(record) not in in_both
        return rank_eval_mode in ("all", mode) or not mode

    return Records(record for record in kept if is_asked(record))


def _mode(record: Dict[str, Any]) -> str:
    return str(record.get("rank_eval_mode") or "")


def _place(record: Dict[str, Any]) -> Tuple[Any, ...]:
    """What a score is of, apart from its rank evaluation mode."""
    return tuple(record.get(key) for key in ("arm", "seed", "round", "task", "budget", "measure", "client", "rows_of"))\
        + (record.get("served_by", "run"),)


def _flat(record: Dict[str, Any], prefix: str = "") -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list) and key not in ("checksum", "event"):
            flat[prefix + key] = value
    return flat
