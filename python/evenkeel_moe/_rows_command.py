"""`python -m evenkeel_moe rows IN OUT`: a table, written as the JSON lines that the program reads."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from typing import Dict, List, NoReturn

from ._paths import local_path
from ._row_files import temporary_file, written_rows
from .errors import EvenkeelError, MissingPackage

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise EvenkeelError(f"rows: {message}", 1)


def _columns(text: str) -> Dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(key and equals and column for key, equals, column in pairs):
        raise argparse.ArgumentTypeError(f"{text!r}, allowed: KEY=COLUMN, separated by commas")
    if len({key for key, _, _ in pairs}) < len(pairs):
        raise argparse.ArgumentTypeError(f"{text!r} has a key twice")
    return {key: column for key, _, column in pairs}


def _parser() -> _Parser:
    parser = _Parser(prog="python3 -m evenkeel_moe rows", allow_abbrev=False,
                     description="Writes the rows of a Parquet, CSV, TSV, Arrow or JSON file, or of a folder of datasets.save_to_disk(), as JSON lines.")
    parser.add_argument("IN", help="the file or folder")
    parser.add_argument("OUT", help="the file of JSON lines, which is made or replaced")
    parser.add_argument("--columns", type=_columns, default={}, metavar="KEY=COLUMN,...",
                        help="the key that evenkeel reads and the column that it is taken from, as prompt=question,completion=answer")
    return parser


def _check_out(out: pathlib.Path, source: pathlib.Path) -> None:
    if not out.parent.is_dir() or (out.exists() and not out.is_file()):
        why = f"{out} is no file" if out.exists() else f"{out.parent} is no folder"
        raise EvenkeelError(f"[io] OUT is {out}, which cannot be written: {why}", 1, "io")
    if out.exists() and source.exists() and os.path.samefile(out, source):
        raise EvenkeelError(f"[io] IN and OUT are both {out}: choose another OUT", 1, "io")


def _convert(words: List[str]) -> None:
    options = _parser().parse_args(words)
    out = local_path(options.OUT)
    _check_out(out, local_path(options.IN))
    part = temporary_file(out)
    try:
        written_rows(local_path(options.IN), options.columns, part, options.IN)
        os.replace(part, out)
    except OSError as error:  # that of a write names no file
        raise EvenkeelError(f"[io] {error.filename or out}: {error.strerror}", 1, "io") from None
    finally:
        part.unlink(missing_ok=True)


def main(words: List[str]) -> NoReturn:
    """Ends the process: 0 when OUT is written, 1 with one line on stderr when it is not."""
    try:
        _convert(words)
    except (EvenkeelError, MissingPackage) as error:
        print(f"evenkeel: {error}", file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        print(f"evenkeel: [io] {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)
