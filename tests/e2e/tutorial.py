"""Follows a document in an empty folder: writes its files and runs its commands, in their order. The first line of a
fenced block tells what it is:

```sh                     commands of bash, which must succeed
```sh not-run: REASON     commands that no test runs, and why; blocks of any language may have this mark
```json rows.json         the file rows.json
```text                   output for the reader, like a bare ```: neither written nor run
"""

import os
import pathlib
import re
import resource
import subprocess
import sys

import pytest

from tiny import PROGRAM, ROOT

BLOCK = re.compile(r"^```(\w*) *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"not-run: \S")
BUILD_LIMIT = 90  # processor seconds, because users wait for it


def seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shell(script, folder):
    """Runs commands of bash. Returns them finished, and the processor time that they took."""
    programs = [str(pathlib.Path(PROGRAM).parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "evenkeel_DIR": programs[0], "PATH": os.pathsep.join(programs),
                   "PYTHONPATH": str(ROOT / "python"), "EVENKEEL_PYTHON": sys.executable}
    begin = seconds_of_children()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done, seconds_of_children() - begin


def follow(document, folder):
    """Returns what each command block of a document printed, and its processor time."""
    done = []
    for language, said, text in BLOCK.findall((ROOT / document).read_text()):
        if language in ("", "text") or NOT_RUN.match(said):
            continue
        if language == "sh":
            assert not said, f"{document}: a block of commands says '{said}', allowed: nothing, or 'not-run: REASON'"
            done.append(shell(text, folder))
        else:
            assert re.fullmatch(r"\S+", said), f"{document}: a {language} block has no file name, and is not marked 'not-run: REASON'"
            (folder / said).parent.mkdir(parents=True, exist_ok=True)
            (folder / said).write_text(text)
    return done


def followed_once(tutorial):
    """A fixture: the folder after the last step, and the output and time of each command block."""
    @pytest.fixture(scope="module")
    def followed(tmp_path_factory):
        folder = tmp_path_factory.mktemp("tutorial")
        return folder, follow(f"docs/{tutorial}", folder)
    return followed


def assert_built_soon_and_keeps_every_promise(followed, block=0):
    """Checks the command block that builds the program and runs its tests."""
    done, seconds = followed[1][block]
    assert seconds < BUILD_LIMIT
    passed = int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1])
    assert passed > 20 and "FAILED" not in done.stdout
