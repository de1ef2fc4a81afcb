"""Where the program is, and its console script."""

from __future__ import annotations

import functools
import logging
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from typing import Dict, List, NoReturn, Optional, Union

from ._torch import environment
from ._version import __version__
from .errors import EvenkeelError

__all__ = ["child_environment", "main", "program_path", "shared_path"]

PACKAGE = pathlib.Path(__file__).resolve().parent
INSIDE = PACKAGE / "_bin" / "evenkeel"
SHARED = PACKAGE / "_share"
VARIABLE = "EVENKEEL_PROGRAM"
LOG = logging.getLogger("evenkeel_moe")
PATIENCE = 60.0
"""Seconds for a program to tell its version."""
LONGEST_VERSION = 200


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


def child_environment() -> Dict[str, str]:
    """The program's environment. EVENKEEL_PROGRAM is left out: a script named there would start itself for ever.

    EVENKEEL_PYTHON is this Python, with which the program fetches a model (`demo --real`) and hosts a method.
    """
    variables = environment()
    variables.pop(VARIABLE, None)
    if sys.executable:
        variables.setdefault("EVENKEEL_PYTHON", sys.executable)
    return variables


def _no_program(named: Union[str, pathlib.Path]) -> EvenkeelError:
    return EvenkeelError(f"{VARIABLE} is {named}, which is no program", 1, "io")


@functools.lru_cache(maxsize=None)
def _version_of(path: pathlib.Path) -> str:
    """What a program answers to --version, without its name."""
    try:
        process = subprocess.Popen([str(path), "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   text=True, errors="replace", env=child_environment())
    except OSError:
        raise _no_program(path) from None
    assert process.stdout is not None
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    line = process.stdout.readline(LONGEST_VERSION).strip()
    timer.cancel()
    process.stdout.close()  # what else it writes is not read
    process.kill()
    process.wait()
    return line[len("evenkeel "):] if line.startswith("evenkeel ") else "of an unknown version"


@functools.lru_cache(maxsize=None)
def _compare_version(path: pathlib.Path) -> None:
    """Warns once of a program of another version than the package's."""
    version = _version_of(path)
    if version != __version__:
        LOG.warning("%s is %s, which is %s; this package is %s", VARIABLE, path, version, __version__)


def _named_program(named: str) -> pathlib.Path:
    path = pathlib.Path(named)
    if not _runs(path):
        raise _no_program(named)
    _compare_version(path.absolute())
    return path.absolute()


def program_path() -> pathlib.Path:
    """The program: that of $EVENKEEL_PROGRAM, else the one inside the package, else `evenkeel` on PATH.

    A warning tells when $EVENKEEL_PROGRAM has another version than the package. Raises EvenkeelError when it names no program,
    and when there is none.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _named_program(named)
    if _runs(INSIDE):
        return INSIDE
    found = _on_path()
    if found is None:
        raise EvenkeelError(f"the program is not found: neither ${VARIABLE} nor {INSIDE} nor `evenkeel` on PATH is one", 1, "io")
    return found


def shared_path(name: str) -> Optional[pathlib.Path]:
    """A file or folder that ships with the program, as in "configs/demo.toml"; None when there is none of that name."""
    for root in (*_beside_program(), SHARED, PACKAGE.parents[1]):  # the last two: of the wheel, of a source tree
        if (root / name).exists():
            return root / name
    return None


def _beside_program() -> List[pathlib.Path]:
    """The folders in which the program itself finds what it ships (shipped_folder() of src/base/plain/files.h)."""
    try:
        program = program_path().resolve()
    except EvenkeelError:
        return []
    sources = [folder for folder in program.parents if (folder / "configs/demo.toml").is_file()]
    prefix = program.parent.parent
    return [prefix / "share" / "evenkeel", prefix / "_share", *sources[:1]]


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """The console script: becomes the program."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        program = str(program_path())
        os.execve(program, ["evenkeel", *words], child_environment())
    except (EvenkeelError, OSError) as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        sys.exit(1)
