"""The SHA-256 of a method's source, or of its code where there is no source."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import pathlib
from types import CodeType, FunctionType
from typing import Any, Dict, Iterator, Tuple

from .method import Method

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
        for function in _functions_in(value):
            yield name, function


def _functions_in(value: Any) -> Iterator[FunctionType]:
    """The functions that an attribute consists of, from the outermost to the innermost."""
    if isinstance(value, FunctionType):
        yield value
    for part in _parts_of(value):
        if part is not None:
            yield from _functions_in(part)


def _parts_of(value: Any) -> Tuple[Any, ...]:
    """What an attribute wraps. A wrapper of functools.lru_cache is no function, but has one in __wrapped__."""
    if isinstance(value, property):
        return value.fget, value.fset, value.fdel
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if isinstance(value, functools.cached_property):
        return (value.func,)
    return (inspect.getattr_static(value, "__wrapped__", None),)  # getattr() finds any name in some objects


def sha256_of_functions(cls: type) -> str:
    """The SHA-256 of the names, code and defaults of the functions of a class and of its bases, but for ek.Method.

    Other attributes are left out: a class may count in them.
    """
    own = [one for one in cls.__mro__ if one not in Method.__mro__]
    lines = [line for number, one in enumerate(own) for line in _lines_of(one, number)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines_of(cls: type, number: int) -> Iterator[str]:
    """A line per function of a class. number: its place among the bases, whose order decides what is called."""
    for name, one in functions_of(cls):
        yield f"{number} {name} {_text_of((one.__code__, one.__defaults__, tuple((one.__kwdefaults__ or {}).items())))}"


def _text_of(value: Any) -> str:
    """A constant as text, without addresses and in one order: of code its operations, names and constants, of what may change its type."""
    if isinstance(value, CodeType):
        handlers = getattr(value, "co_exceptiontable", b"")  # before Python 3.11 they are among the operations
        names = (value.co_names, value.co_varnames, value.co_freevars)
        return _text_of((_parameters_of(value), value.co_code, handlers, names, value.co_consts))
    if isinstance(value, tuple):
        return f"({', '.join(map(_text_of, value))})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_text_of, value)))}}}"
    is_plain = value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes, slice))
    return repr(value) if is_plain else type(value).__name__


def _parameters_of(code: CodeType) -> Tuple[int, ...]:
    """How many parameters there are of each kind, which the operations do not tell."""
    kinds = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, kinds
