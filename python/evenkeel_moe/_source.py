"""The SHA-256 of a method's source."""

from __future__ import annotations

import ast
import hashlib
import os
import pathlib
from typing import Dict, Iterator, Tuple

__all__ = ["sha256_of_source"]


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
