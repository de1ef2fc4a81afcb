"""Paths that a caller gives."""

from __future__ import annotations

import os
import pathlib
from typing import Union

__all__ = ["PathLike", "local_path"]

PathLike = Union[str, "os.PathLike[str]"]


def local_path(path: PathLike) -> pathlib.Path:
    """The absolute path, so that it names the same file after os.chdir(). "~" at the start is the home folder, as for the program."""
    text = os.fspath(path)
    if text == "~" or text.startswith("~/"):
        return pathlib.Path(text).expanduser().absolute()
    return pathlib.Path(text).absolute()
