"""A progress bar from the program's events: one line of a terminal, or one bar of a notebook."""

from __future__ import annotations

import sys
from typing import Any, Optional

from ._process import Event

__all__ = ["Bar", "bar_for"]

WIDTH = 30


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min" if whole < 3600 else f"{whole // 3600}:{whole // 60 % 60:02d} h"


class Bar:
    """Shows nothing; those below show a share in 0 .. 1 and a text."""

    def show(self, share: float, text: str) -> None:
        pass

    def close(self) -> None:
        pass

    def take(self, event: Event) -> None:
        """Draws what an event says."""
        kind = event.get("event")
        if kind == "progress" and event["phase"] == "train":
            steps = event["steps_done"] + event["steps_left"]
            self.show(event["steps_done"] / max(1, steps), f"round {event['round']}/{event['rounds']}, "
                      f"{event['clients_done']}/{event['clients']} clients, {_duration(event['seconds_left'])} left")
        elif kind == "progress":
            self.show(event["done"] / max(1, event["rows"]), f"{event['task']} at budget {event['budget']:g}: {event['done']}/{event['rows']} rows")
        elif kind == "round":
            self.show(event["round"] / event["rounds"], f"round {event['round']}/{event['rounds']}" + ("" if event["loss"] is None else f", loss {event['loss']:.4f}"))


class TerminalBar(Bar):
    """One line of stderr, which is drawn anew."""

    def __init__(self) -> None:
        self.drawn = False

    def show(self, share: float, text: str) -> None:
        full = int(WIDTH * min(1.0, share))
        sys.stderr.write(f"\r\033[K{'█' * full}{'░' * (WIDTH - full)} {share:4.0%} {text}")
        sys.stderr.flush()
        self.drawn = True

    def close(self) -> None:
        if self.drawn:
            sys.stderr.write("\n")


class NotebookBar(Bar):
    """One output of a cell, which is replaced."""

    class _View:
        def __init__(self, share: float, text: str) -> None:
            self.share, self.text = share, text

        def __repr__(self) -> str:
            return f"{self.share:.0%} {self.text}"

        def _repr_html_(self) -> str:
            return f'<progress value="{self.share:.4f}" max="1" style="width:20em"></progress> {self.text}'

    def __init__(self) -> None:
        self.handle: Optional[Any] = None

    def show(self, share: float, text: str) -> None:
        from IPython import display

        view = self._View(share, text)
        if self.handle is None:
            show: Any = display.display
            self.handle = show(view, display_id=True)
        else:
            self.handle.update(view)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and hasattr(instance, "kernel")


def bar_for(progress: Optional[bool]) -> Bar:
    """The bar of this place. None: one where somebody looks at it; False: none."""
    if progress is False:
        return Bar()
    if _in_notebook():
        return NotebookBar()
    return TerminalBar() if progress or sys.stderr.isatty() else Bar()
