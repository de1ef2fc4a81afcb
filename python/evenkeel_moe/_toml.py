"""Values as --set takes them, and configs read back."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
from typing import Any, Dict, List, Mapping, Optional

from .errors import MissingPackage

__all__ = ["read_toml", "set_flags", "toml_value"]


def toml_value(value: Any) -> str:
    """A Python value as TOML. Raises TypeError for one that TOML has no form for."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return float.__repr__(value)  # of numpy's too
    if isinstance(value, (str, os.PathLike)):
        return json.dumps(os.fspath(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {toml_value(entry)}" for key, entry in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if hasattr(value, "item"):  # a number of numpy
        return toml_value(value.item())
    raise TypeError(f"{value!r} is a {type(value).__name__}, allowed: bool, int, float, str, path, list and dict")


def _key(key: Any) -> str:
    """A key of an inline table. One with dots leads into tables, as the keys of `set` do."""
    text = str(key)
    is_path = all(part and part.isascii() and part.replace("-", "").replace("_", "").isalnum() for part in text.split("."))
    return text if is_path else json.dumps(text, ensure_ascii=False)


def set_flags(settings: Optional[Mapping[str, Any]]) -> List[str]:
    """The flags of {"a.b": value}."""
    words: List[str] = []
    for key, value in (settings or {}).items():
        words += ["--set", f"{key}={toml_value(value)}"]
    return words


def read_toml(path: pathlib.Path) -> Dict[str, Any]:
    """A TOML file as a dict. Python 3.10 and earlier need tomli."""
    with open(path, "rb") as file:
        table: Dict[str, Any] = _reader().load(file)
    return table


def _reader() -> Any:
    for name in ("tomllib", "tomli"):
        try:
            return importlib.import_module(name)
        except ImportError:
            pass
    raise MissingPackage("reading a config with Python below 3.11", "tomli", "toml")
