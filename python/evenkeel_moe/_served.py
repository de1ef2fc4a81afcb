"""Methods that are classes of this process: the program connects to it, and hooks run in threads of it."""

from __future__ import annotations

import hashlib
import inspect
import os
import pathlib
import socket
import tempfile
import threading
from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Type, Union

from ._host import Host
from ._source import sha256_of_functions, sha256_of_source
from ._toml import flat_keys, toml_value
from .errors import EvenkeelError, MissingPackage
from .method import Method, method_name, options_of

__all__ = ["CHOICE", "MethodLike", "ServedMethods", "changed_options", "check_without_options", "chosen_settings"]

MethodLike = Union[str, Type[Method], Method]
"""FILE.py:CLASS, a class, or an object of one with options."""

CHOICE = "method.name"
"""The key of a config that a method in Python replaces."""


def class_of(method: MethodLike) -> Optional[Type[Method]]:
    """The class of a method; None for FILE.py:CLASS. Raises TypeError for anything else."""
    if isinstance(method, (str, os.PathLike)):
        return None
    if isinstance(method, Method):
        return type(method)
    if isinstance(method, type) and issubclass(method, Method):
        return method
    raise TypeError(f"method is {method!r}, allowed: a class of ek.Method, an object of one, or \"FILE.py:CLASS\"")


def chosen_settings(method: Optional[MethodLike], settings: Optional[Mapping[str, Any]]) -> Dict[str, Any]:
    """An object's options as settings, then the caller's, which win. Raises TypeError when both choose a method."""
    if method is not None and CHOICE in flat_keys(settings or {}):
        raise TypeError(f"method and {CHOICE} of set both choose a method: give one of them")
    return {**(_settings_of(method, method.options) if isinstance(method, Method) else {}), **(settings or {})}


def _settings_of(method: Method, options: Mapping[str, Any]) -> Dict[str, Any]:
    return {f"method.{method_name(type(method))}.{key}": value for key, value in options.items()}


def changed_options(method: Optional[MethodLike]) -> Dict[str, Any]:
    """The settings of those options of an object that are not the defaults."""
    if not isinstance(method, Method):
        return {}
    known = options_of(type(method))
    return _settings_of(method, {key: value for key, value in method.options.items() if value != known[key]["default"]})


def check_without_options(methods: Iterable[MethodLike]) -> None:
    """Raises TypeError for an object with other options than the defaults: arms of a study choose theirs."""
    for method in methods:
        said = ", ".join(f"{key}={toml_value(value)}" for key, value in changed_options(method).items())
        if said:
            raise TypeError(f"methods has an object of {type(method).__name__} with options, allowed: the class, and {said} in `set` of arms")


def source_of(cls: Type[Method]) -> Tuple[str, str]:
    """The file of a class and the SHA-256 of its source: of the whole file with the modules of its folder that it
    imports, of its own text in a notebook, or where there is no text of the code of its functions and its bases'."""
    file = _file_of(cls)
    if pathlib.Path(file).is_file() and "ipykernel" not in file:
        return os.path.abspath(file), sha256_of_source(pathlib.Path(file))
    try:
        return file, hashlib.sha256(inspect.getsource(cls).encode()).hexdigest()
    except (OSError, TypeError):
        return file, sha256_of_functions(cls)


def _file_of(cls: Type[Method]) -> str:
    try:
        return inspect.getfile(cls)
    except (OSError, TypeError):
        return "<notebook>"


SOCKET = "method"
LONGEST_PATH = 107
"""Bytes of the path of a Unix socket on Linux."""


def _folder_of_socket() -> tempfile.TemporaryDirectory[str]:
    """A new folder whose path is short enough for a socket in it: of $TMPDIR, else of /tmp. Raises EvenkeelError where
    there is none."""
    folder = tempfile.TemporaryDirectory(prefix="evenkeel-")
    if len(os.fsencode(os.path.join(folder.name, SOCKET))) <= LONGEST_PATH:
        return folder
    folder.cleanup()
    try:
        return tempfile.TemporaryDirectory(prefix="evenkeel-", dir="/tmp")
    except OSError as error:
        raise EvenkeelError(f"TMPDIR is {tempfile.gettempdir()}, too long for a socket in it, and /tmp cannot be used "
                            f"({error.strerror}): set TMPDIR to a shorter path", 1, "io") from None


class ServedMethods:
    """While open, lets the program call `methods`, named by the flags in `words`."""

    def __init__(self, methods: Iterable[Optional[MethodLike]]) -> None:
        self.files = [os.fspath(method) for method in methods if isinstance(method, (str, os.PathLike))]
        self.classes: Dict[str, Type[Method]] = {}
        self.raised: List[BaseException] = []
        self.listener: Optional[socket.socket] = None
        for method in methods:
            cls = None if method is None else class_of(method)
            if cls is not None and self.classes.setdefault(cls.__name__, cls) is not cls:
                raise ValueError(f"two classes have the name {cls.__name__}")

    @property
    def words(self) -> List[str]:
        """The flags that name the methods."""
        own = [f"{self.path}:{name}" for name in self.classes] if self.classes else []
        return [word for source in [*self.files, *own] for word in ("--method", source)]

    def __enter__(self) -> ServedMethods:
        if self.classes:
            try:
                import numpy  # noqa: F401
            except ImportError:
                raise MissingPackage("a method in Python", "numpy", "tensors") from None
            self.folder = _folder_of_socket()
            self.path = os.path.join(self.folder.name, SOCKET)
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(self.path)
            self.listener.listen()
            self.thread = threading.Thread(target=self._accept, args=(self.listener,), daemon=True)
            self.thread.start()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], _: Optional[TracebackType]) -> None:
        if self.listener is not None:
            self.listener.shutdown(socket.SHUT_RDWR)  # which ends accept(), as close() does not
            self.listener.close()
            self.thread.join()
            self.folder.cleanup()
        if isinstance(error, KeyboardInterrupt):
            self._say_how_to_go_on(error)
        if isinstance(error, EvenkeelError) and self.raised:
            raise error from self.raised[-1]

    def _say_how_to_go_on(self, error: KeyboardInterrupt) -> None:
        """Adds to a message with a command that no command can name a class of a notebook."""
        names = ", ".join(name for name, cls in self.classes.items() if not os.path.isfile(_file_of(cls)))
        if names and " with: " in str(error):
            error.args = (f"{error}; {names} has no file for --method, so go on from this Python, as by Run.resume(method=...)",)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            Host(connection, self._find, self.raised.append).run()

    def _find(self, _: str, name: str) -> Tuple[Any, str, str]:
        cls = self.classes[name]
        return (cls, *source_of(cls))
