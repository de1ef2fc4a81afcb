"""Starts the program and reads what it writes: JSON lines on stdout, its error line on stderr (docs/json-lines.md)."""

from __future__ import annotations

import collections
import json
import logging
import re
import signal
import subprocess
import threading
from typing import IO, AbstractSet, Any, Callable, Deque, Dict, Iterable, List, Optional

from ._program import child_environment, program_path
from .errors import EvenkeelError

__all__ = ["Event", "ended_as", "events_of", "lines_of", "run_program", "text_of"]

Event = Dict[str, Any]
"""A JSON object of a line."""

LOG = logging.getLogger("evenkeel_moe")
ERROR_LINE = "evenkeel: "
LOG_LINE = re.compile(r"\d\d:\d\d:\d\d (warning|error) +(.*)")
INTERRUPTED = 130
LAST_LINES = 50
LAST_WORDS = 5.0
"""Seconds for the end of stderr after the program's end. A process that it started may hold it open for longer."""
LONGEST_LINE = 1 << 16
"""Characters of a line of stderr that are kept together."""


class _Errors(threading.Thread):
    """Reads stderr: the program's warnings go to the logger, the error line is kept."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.last: Deque[str] = collections.deque(maxlen=LAST_LINES)
        self.was_awaited = False
        self.start()

    def run(self) -> None:
        for line in iter(lambda: self.stream.readline(LONGEST_LINE), ""):
            self.last.append(line.rstrip("\n"))
            logged = LOG_LINE.match(line)
            if logged:
                LOG.warning("%s", logged[2])

    def wait(self) -> None:
        """Waits for the end of stderr, at most LAST_WORDS in all calls together."""
        if not self.was_awaited:
            self.was_awaited = True
            self.join(LAST_WORDS)

    def message(self) -> str:
        """The error line, or what was said last."""
        self.wait()
        last = self.last.copy()  # run() may still append to it
        said = [line[len(ERROR_LINE):] for line in last if line.startswith(ERROR_LINE)]
        return said[-1] if said else (last[-1] if last else "the program ended without a word")


class _Child:
    """The running program, in a process group of its own: Ctrl-C of a terminal reaches it once, through stop()."""

    def __init__(self, arguments: Iterable[str], cwd: Optional[str]) -> None:
        command = [str(program_path()), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        encoding="utf-8", errors="replace", cwd=cwd, start_new_session=True, env=child_environment())
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout = self.process.stdout
        self.errors = _Errors(self.process.stderr)

    def stop(self) -> None:
        """Asks the program to stop at its next safe place; a second time ends it at once."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def wait_out(self) -> None:
        """Waits for the end. Ctrl-C meanwhile does not wait for a safe place."""
        while True:
            try:
                for _ in self.stdout:
                    pass
                self.process.wait()
                return
            except KeyboardInterrupt:
                self.stop()

    def close(self) -> None:
        """Closes what was read to its end."""
        self.stdout.close()
        self.errors.wait()
        if not self.errors.is_alive():
            self.errors.stream.close()


def run_program(arguments: Iterable[str], on_line: Callable[[str], None], cwd: Optional[str] = None) -> int:
    """Runs a command to its end and calls `on_line` with every line of its stdout.

    When Ctrl-C arrives, or `on_line` raises, the program is asked to stop, saves its state, and the exception is raised again.
    Returns 0. Raises EvenkeelError with the program's line for any other exit code.
    """
    child = _Child(arguments, cwd)
    try:
        for line in child.stdout:
            on_line(line)
        code = child.process.wait()
    except KeyboardInterrupt:
        child.stop()
        child.wait_out()
        raise KeyboardInterrupt(child.errors.message()) from None
    except BaseException:
        child.stop()
        child.wait_out()
        raise
    finally:
        child.close()
    if code == INTERRUPTED:
        raise KeyboardInterrupt(child.errors.message())
    if code < 0:
        raise EvenkeelError(f"the program {ended_as(code)}", code)
    if code != 0:
        raise EvenkeelError(child.errors.message(), code)
    return code


def ended_as(code: int) -> str:
    """How a process ended, from subprocess's return code."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    return f"was ended by {name}" + (", as the system does when memory runs out" if name == "SIGKILL" else "")


def lines_of(arguments: Iterable[str]) -> List[Event]:
    """The JSON lines of a command that answers. Raises as run_program()."""
    lines: List[Event] = []
    run_program(arguments, lambda line: lines.append(json.loads(line)))
    return lines


def events_of(arguments: Iterable[str], on_event: Callable[[Event], None], keep: AbstractSet[str]) -> List[Event]:
    """Runs a command that takes long, and calls `on_event` with each of its events as it comes.

    Returns the events of the kinds in `keep`. The others are dropped, since a run of days writes millions.
    Raises as run_program().
    """
    kept: List[Event] = []
    errors: Deque[Event] = collections.deque(maxlen=1)

    def take(line: str) -> None:
        event = json.loads(line)
        kind = event.get("event")
        if kind == "error":
            errors.append(event)
        if kind in keep:
            kept.append(event)
        on_event(event)

    try:
        run_program(arguments, take)
    except EvenkeelError as error:
        if errors:
            raise EvenkeelError(errors[-1]["message"], error.exit_code, errors[-1]["kind"]) from None
        raise
    return kept


def text_of(arguments: Iterable[str]) -> str:
    """The whole stdout of a command. Raises as run_program()."""
    parts: List[str] = []
    run_program(arguments, parts.append)
    return "".join(parts)
