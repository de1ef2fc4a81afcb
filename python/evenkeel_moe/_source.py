"""The SHA-256 of a method's source, or of its code where there is no source."""

from __future__ import annotations

import ast
import hashlib
import os
import pathlib
from types import CodeType, FunctionType
from typing import Any, Dict, Iterator, Tuple

__all__ = ["functions_of", "sha256_of_functions", "sha256_of_source"]


def sha256_of_source(file: pathlib.Path) -> str:
    """The SHA-256 of a Python file; where it imports modules that lie beside it, of the digests of all of these files by name."""
    file = file.absolute()
    digests: Dict[str, str] = {}
    _add(file, file.parent, digests)
    if len(digests) == 1:
        return next(iter(digests.values()))
    own = digests.pop(str(file))
    text = own + "".join(f"\n{os.path.relpath(name, file.parent)} {digest}" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _add(file: pathlib.Path, folder: pathlib.Path, digests: Dict[str, str]) -> None:
    if str(file) in digests:
        return
    source = file.read_bytes()
    digests[str(file)] = hashlib.sha256(source).hexdigest()
    for found in _imported(source, file, folder):
        if found.is_file():
            _add(found, folder, digests)


def _imported(source: bytes, file: pathlib.Path, folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files of modules that a source may import; none of one that cannot be parsed. Names with dots in front are of
    modules beside the file, or above it, the others of modules in `folder`."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(folder.joinpath(*alias.name.split(".")))
        elif isinstance(node, ast.ImportFrom):
            package = file.parents[min(node.level, len(file.parents)) - 1] if node.level else folder
            names = node.module.split(".") if node.module else []
            if node.level:  # which runs the packages around the module too
                yield package / "__init__.py"
                for n in range(1, len(names)):
                    yield from _files(package.joinpath(*names[:n]))
            module = package.joinpath(*names)
            if names:
                yield from _files(module)
            for alias in node.names:
                yield from _files(module / alias.name)


def _files(module: pathlib.Path) -> Tuple[pathlib.Path, pathlib.Path]:
    return module.with_name(f"{module.name}.py"), module / "__init__.py"


def functions_of(cls: type) -> Iterator[Tuple[str, FunctionType]]:
    """The functions of a class, not of its bases, each with the name of its attribute: of properties and under decorators too."""
    for name, value in sorted(vars(cls).items()):
        for part in (value.fget, value.fset, value.fdel) if isinstance(value, property) else (getattr(value, "__func__", value),):
            while isinstance(part, FunctionType):
                yield name, part
                part = getattr(part, "__wrapped__", None)


def sha256_of_functions(cls: type) -> str:
    """The SHA-256 of the names, code and defaults of a class's functions. Other attributes are left out: a class may count in them."""
    parts = [f"{name} {_text_of((one.__code__, one.__defaults__, tuple((one.__kwdefaults__ or {}).items())))}" for name, one in functions_of(cls)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _text_of(value: Any) -> str:
    """A constant as text, without addresses and in one order: of code its operations, names and constants, of what may change its type."""
    if isinstance(value, CodeType):
        return _text_of((value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts))
    if isinstance(value, tuple):
        return f"({', '.join(map(_text_of, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_text_of, value)))}}}"
    is_plain = value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes, slice))
    return repr(value) if is_plain else type(value).__name__
