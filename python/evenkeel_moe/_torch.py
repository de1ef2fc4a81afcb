"""Another LibTorch than the one in the package: that of an installed torch, for example one with CUDA.

`EVENKEEL_TORCH` is a folder `site-packages/torch`, or `auto`: the torch that this Python would import. LibTorch promises no binary
compatibility between its minor versions, so only the one that the program was built with is accepted.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import pathlib
import re
from typing import Dict, List, Mapping, Optional

from .errors import EvenkeelError

__all__ = ["environment"]

VARIABLE = "EVENKEEL_TORCH"
BUILT_WITH = pathlib.Path(__file__).resolve().parent / "_lib" / "torch-version"
# In the order in which they need each other. The last two are there with CUDA only.
LIBRARIES = ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so")


def _refused(text: str) -> EvenkeelError:
    return EvenkeelError(f"{VARIABLE} is {os.environ.get(VARIABLE, '')}: {text}", 1, "config")


def _folder(named: str) -> pathlib.Path:
    if named != "auto":
        return pathlib.Path(named)
    spec = importlib.util.find_spec("torch")  # without importing it, which takes seconds
    if spec is None or not spec.submodule_search_locations:
        raise _refused("this Python has no torch")
    return pathlib.Path(list(spec.submodule_search_locations)[0])


def _version(torch: pathlib.Path) -> str:
    file = torch / "version.py"
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", file.read_text(), re.MULTILINE) if file.is_file() else None
    if not found:
        raise _refused(f"{file} does not name a version; allowed: auto, or a folder site-packages/torch")
    return found.group(1)


def _minor(version: str) -> List[str]:
    return version.split("+")[0].split(".")[:2]


def _check_version(torch: pathlib.Path) -> None:
    has, needs = _version(torch), BUILT_WITH.read_text().strip()
    if _minor(has) != _minor(needs):
        raise _refused(f"torch {has} is in {torch}, but the program needs torch {'.'.join(_minor(needs))}")


def _check_path(torch: pathlib.Path) -> None:
    """The dynamic linker splits LD_PRELOAD at blanks and colons, which it cannot quote."""
    if re.search(r"[\s:]", str(torch)):
        raise _refused(f"{torch} has a blank or a colon in its path; allowed: a path without")


def _libraries(torch: pathlib.Path) -> List[str]:
    """Paths of its libraries, each loaded once here: what is missing is said now, and not by the dynamic linker."""
    if not (torch / "lib" / LIBRARIES[1]).is_file():
        raise _refused(f"{torch / 'lib' / LIBRARIES[1]} is missing")
    files = [str(torch / "lib" / name) for name in LIBRARIES if (torch / "lib" / name).is_file()]
    for file in files:
        try:
            ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise _refused(f"it cannot be loaded: {str(error).splitlines()[0]}") from None
    return files


def environment(base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """Variables to start the program with: `base` (os.environ), and LD_PRELOAD where EVENKEEL_TORCH names another LibTorch.

    Raises EvenkeelError when that one cannot be used.
    """
    variables = dict(os.environ if base is None else base)
    named = variables.get(VARIABLE, "")
    if not named:
        return variables
    if not BUILT_WITH.is_file():
        raise _refused("only the program of the wheel can take another torch, and this package holds none")
    torch = _folder(named)
    _check_path(torch)
    _check_version(torch)
    before = [variables["LD_PRELOAD"]] if variables.get("LD_PRELOAD") else []
    variables["LD_PRELOAD"] = ":".join(_libraries(torch) + before)
    return variables
