"""Where the program is, and its console script."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
from typing import List, NoReturn, Optional

from ._torch import environment
from .errors import EvenkeelError

__all__ = ["main", "program_path", "shared_path"]

PACKAGE = pathlib.Path(__file__).resolve().parent
INSIDE = PACKAGE / "_bin" / "evenkeel"
SHARED = PACKAGE / "_share"
VARIABLE = "EVENKEEL_PROGRAM"


def _runs(path: pathlib.Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _on_path() -> Optional[pathlib.Path]:
    """The program on PATH. The console script of this package is not it: it would start itself for ever."""
    own = pathlib.Path(sys.executable).parent / "evenkeel"
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("evenkeel", path=folder)
        if found and not (own.exists() and os.path.samefile(found, own)) and not _is_script(found):
            return pathlib.Path(found)
    return None


def _is_script(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def program_path() -> pathlib.Path:
    """The program: the one inside the package, else $EVENKEEL_PROGRAM, else `evenkeel` on PATH.

    Raises EvenkeelError when there is none.
    """
    if _runs(INSIDE):
        return INSIDE
    named = os.environ.get(VARIABLE)
    if named:
        path = pathlib.Path(named)
        if _runs(path):
            return path.absolute()
        raise EvenkeelError(f"{VARIABLE} is {named}, which is no program", 1, "io")
    found = _on_path()
    if found is None:
        raise EvenkeelError(f"the program is not found: neither {INSIDE} nor ${VARIABLE} nor `evenkeel` on PATH is one", 1, "io")
    return found


def shared_path(name: str) -> Optional[pathlib.Path]:
    """A file or folder that ships with the program, as in "configs/demo.toml"; None when there is none of that name."""
    for root in (SHARED, PACKAGE.parents[1]):  # of the wheel, of a source tree
        if (root / name).exists():
            return root / name
    return None


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """The console script: becomes the program."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        program = str(program_path())
        os.execve(program, ["evenkeel", *words], environment())
    except (EvenkeelError, OSError) as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        sys.exit(1)
