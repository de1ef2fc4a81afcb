"""What the functions of this package raise."""

from __future__ import annotations

import copyreg
from typing import Any, Optional

__all__ = ["EvenkeelError", "MissingPackage"]


class EvenkeelError(Exception):
    """The program refused its input or failed.

    str(error) is the program's own line without its name in front, or one of this package: who, what arrived and what is allowed.
    """

    def __init__(self, message: str, exit_code: int, kind: Optional[str] = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """1: the input is wrong, or a file cannot be read or written; 2: a defect of the program; below 0: ended by a signal."""
        self.kind = kind
        """config, data, checkpoint, shape, numeric, io or internal; None where the command has no events."""

    def __reduce__(self) -> Any:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class MissingPackage(ImportError):
    """A package that is optional is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}, which is not installed: pip install 'evenkeel-moe[{extra}]' "
                         "(the wheel first: docs/installing.md)", name=package)

    def __reduce__(self) -> Any:
        return copyreg.__newobj__, (type(self), *self.args), {**self.__dict__, "msg": self.msg, "name": self.name}  # type: ignore[attr-defined]
