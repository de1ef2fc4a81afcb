"""The process that has a method's class, and answers the program's calls (src/host/connection.h)."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import select
import signal
import socket
import sys
import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Set

from . import _hooks
from ._calls import Call, Refused
from ._source import functions_of, sha256_of_source
from ._version import __version__
from ._wire import Closed, Packer, Wire
from .method import Method, described

__all__ = ["Host", "serve"]

PROTOCOL = 1
PACKAGE = str(pathlib.Path(__file__).parent)


class Host:
    """Answers the calls of one connection."""

    def __init__(self, connection: socket.socket, find: Callable[[str, str], Any], on_error: Callable[[BaseException], None]) -> None:
        """find: returns (class, file, sha256) for a file and a class's name. on_error: called with what a hook raises."""
        self.wire = Wire(connection)
        self.find, self.on_error = find, on_error
        self.cls: Any = None
        self.file = ""
        self.objects: List[Method] = []

    def run(self) -> None:
        """Answers until the program ends the connection."""
        try:
            while True:
                self._answer(self.wire.receive())
        except Closed:
            pass

    def _answer(self, message: Mapping[str, Any]) -> None:
        packer = Packer(self.wire)
        try:
            if "hello" in message:
                reply = self._describe(message)
            elif "make" in message:
                reply = self._make(message["make"])
            else:
                reply = self._call(message, packer)
        except Closed:
            raise
        except BaseException as error:
            packer = Packer(self.wire)
            reply = {"error": self._error(error, "hello" in message or "make" in message)}
            _clear(error)
        self.wire.finish(reply, packer)
        if "hello" in message and "error" not in reply:
            threading.Thread(target=_import_numpy, daemon=True).start()

    def _describe(self, message: Mapping[str, Any]) -> Dict[str, Any]:
        if message["protocol"] != PROTOCOL or message["version"] != __version__:
            raise RuntimeError(f"the program is version {message['version']}, the package evenkeel_moe in {PACKAGE} {__version__}")
        if importlib.util.find_spec("numpy") is None:
            raise ImportError(f"a method in Python needs numpy in {sys.executable}")
        self.cls, self.file, sha256 = self.find(message["hello"], message["class"])
        return {"description": described(self.cls, self.file, sha256)}

    def _make(self, options: Mapping[str, Any]) -> Dict[str, Any]:
        self.objects.append(self.cls(**options))
        return {"made": len(self.objects) - 1}

    def _call(self, message: Mapping[str, Any], packer: Packer) -> Dict[str, Any]:
        method = self.objects[message["object"]]
        with Call(self.wire, message["call"], method.library) as call:
            call.arguments = _hooks.arguments_of(call, message["arguments"])
            return _hooks.result_of(call, getattr(method, call.hook)(*call.arguments.values()), packer)

    def _error(self, error: BaseException, is_config: bool) -> Dict[str, Any]:
        if isinstance(error, Refused):
            return {"kind": "data", "text": str(error), "refusal": error.number}
        self.on_error(error)
        return {"kind": "config" if is_config else "data", "text": f"{type(error).__name__}: {error}{_place(error, self._files())}"}

    def _files(self) -> Set[str]:
        """The files of the class: those of its functions too, which cells of a notebook and base classes have elsewhere."""
        classes = [one for one in getattr(self.cls, "__mro__", ()) if issubclass(one, Method) and one is not Method]
        return {self.file, *(innermost.__code__.co_filename for one in classes for innermost in dict(functions_of(one)).values())}


def _clear(error: BaseException) -> None:
    """Frees what the frames of an error and of its causes hold, so that no array outlives the call."""
    import traceback

    errors: List[BaseException] = [error]
    for one in errors:
        traceback.clear_frames(one.__traceback__)
        errors += [other for other in (one.__cause__, one.__context__) if other is not None and other not in errors]


def _place(error: BaseException, own: Set[str]) -> str:
    """The innermost line of the error's traceback in the files `own`; without one, that is not of this package."""
    import traceback

    if isinstance(error, SyntaxError) and error.filename:
        return f" ({os.path.basename(error.filename)}, line {error.lineno})"
    every = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in every if frame.filename in own] or [frame for frame in every if not frame.filename.startswith((PACKAGE, "<"))]
    return f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def class_in_file(file: str, name: str) -> Any:
    """The class of a file, the file, and its SHA-256."""
    path = pathlib.Path(file)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TypeError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, Method) and value is not Method]
        raise AttributeError(f"{path.name} has no class {name}; it has {', '.join(known) or 'no class of a method'}")
    return getattr(module, name), str(path), sha256_of_source(path)


def _end_with(connection: socket.socket) -> None:
    """Ends this process when the program has ended, also while a hook runs."""
    poll = select.poll()
    poll.register(connection, 0)
    while not any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        pass
    os._exit(0)


def serve(descriptor: int) -> None:
    """The child process of the program. descriptor: its end of the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program stops, and this process with it
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    Host(connection, class_in_file, _print).run()
    sys.stdout.flush()
    os._exit(0)


def _print(error: BaseException) -> None:
    import traceback

    traceback.print_exception(type(error), error, error.__traceback__)


def _import_numpy() -> None:
    """Imports numpy while the program reads its config and loads the base, before a hook needs it."""
    import contextlib

    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401
