"""Values as --set takes them, and configs read back."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import re
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .errors import MissingPackage

__all__ = ["config_words", "flat_keys", "parse_toml", "read_toml", "set_flags", "toml_value"]

LIST_OF_TABLES = "clients.client"
"""The only key of a config that holds a list of tables."""
BARE_KEY = r"[A-Za-z0-9_-]+"


def toml_value(value: Any, key: str = "the value") -> str:
    """A Python value as TOML. Raises TypeError naming `key` for one that TOML has no form for."""
    if isinstance(value, (list, tuple)) and any(isinstance(entry, Mapping) for entry in value) and key != LIST_OF_TABLES:
        raise TypeError(f"{key} is a list of dicts, allowed: numbers and texts; rows go with data.files.train, data.files.test and clients")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float.__repr__(value)  # of numpy's too
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {toml_value(entry, f'{key}.{name}')}" for name, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml_value(entry, key) for entry in value) + "]"
    if hasattr(value, "tolist"):  # numbers and arrays of numpy
        return toml_value(value.tolist(), key)
    raise TypeError(f"{key} is of type {type(value).__name__}, allowed: bool, int, float, str, path, list and dict")


def _key(key: Any) -> str:
    """A key of an inline table. One with dots leads into tables, as the keys of `set` do."""
    text = str(key)
    is_path = all(part and part.isascii() and part.replace("-", "").replace("_", "").isalnum() for part in text.split("."))
    return text if is_path else json.dumps(text, ensure_ascii=False)


def set_flags(settings: Optional[Mapping[str, Any]]) -> List[str]:
    """The flags of {"a.b": value}."""
    words: List[str] = []
    for key, value in (settings or {}).items():
        words += ["--set", f"{key}={toml_value(value, key)}"]
    return words


def _entries(table: Mapping[str, Any], above: str = "") -> Iterator[Tuple[str, Any]]:
    """The keys of nested tables as dotted keys, each with its value."""
    for name, value in table.items():
        key = f"{above}.{name}" if above else str(name)
        plain = isinstance(value, Mapping) and all(re.fullmatch(rf"{BARE_KEY}(\.{BARE_KEY})*", str(inner)) for inner in value)
        if plain and value:
            yield from _entries(value, key)
        else:
            yield key, value


def flat_keys(config: Mapping[str, Any]) -> Dict[str, Any]:
    """The dotted keys of nested dicts, each with its value: of a key that is there twice, the last."""
    return dict(_entries(config))


def config_words(config: Mapping[str, Any], without: Sequence[str] = ()) -> List[str]:
    """The words that stand for a config file: an empty one, and a flag for every key of the dict but those of `without`."""
    return [os.devnull, *set_flags({key: value for key, value in flat_keys(config).items() if key not in without})]


def read_toml(path: pathlib.Path) -> Dict[str, Any]:
    """A TOML file as a dict. Python 3.10 and earlier need tomli."""
    return parse_toml(path.read_text(encoding="utf-8"))


def parse_toml(text: str) -> Dict[str, Any]:
    """TOML as a dict, as read_toml()."""
    table: Dict[str, Any] = _reader().loads(text)
    return table


def _reader() -> Any:
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise MissingPackage("reading a config with Python below 3.11", "tomli", "toml")
