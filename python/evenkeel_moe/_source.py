"""The SHA-256 of a method's source."""

from __future__ import annotations

import ast
import hashlib
import pathlib
from typing import Dict, Iterator

__all__ = ["sha256_of_source"]


def sha256_of_source(file: pathlib.Path) -> str:
    """The SHA-256 of a Python file; where it imports modules that lie beside it, of the digests of all of these files by name."""
    digests: Dict[str, str] = {}
    _add(file, file.parent, digests)
    if len(digests) == 1:
        return next(iter(digests.values()))
    own = digests.pop(str(file))
    text = own + "".join(f"\n{pathlib.Path(name).relative_to(file.parent)} {digest}" for name, digest in sorted(digests.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _add(file: pathlib.Path, folder: pathlib.Path, digests: Dict[str, str]) -> None:
    if str(file) in digests:
        return
    source = file.read_bytes()
    digests[str(file)] = hashlib.sha256(source).hexdigest()
    for name in _imported(source):
        module = folder.joinpath(*name.split(".")) if name else file
        for found in (module.with_suffix(".py"), module / "__init__.py"):
            if found.is_file():
                _add(found, folder, digests)


def _imported(source: bytes) -> Iterator[str]:
    """The names of modules that a source may import; none of one that cannot be parsed."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = f"{node.module}." if node.module else ""
            yield from (node.module or "", *(inside + alias.name for alias in node.names))
