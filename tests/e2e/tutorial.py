"""A document, followed to the letter in an empty folder: its files are written, its commands are run, in the order in which they
stand there. What a fenced block is, its first line says:

```sh                     commands of bash, which must succeed
```sh not-run: REASON     commands that no test runs, and why; the mark serves blocks of any language
```json rows.json         the file rows.json
```text                   what a person sees, as a bare ``` does: neither written nor run
"""

import os
import pathlib
import re
import resource
import subprocess

import pytest

from tiny import PROGRAM, ROOT

BLOCK = re.compile(r"^```(\w*) *([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"not-run: \S")
BUILD_LIMIT = 90  # processor seconds: somebody waits for it


def seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def shell(script, folder):
    """The finished commands, and the processor time they took."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "evenkeel_DIR": str(pathlib.Path(PROGRAM).parent)}
    begin = seconds_of_children()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=600)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done, seconds_of_children() - begin


def follow(document, folder):
    """What each command block of a file of this project printed and took."""
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
    """A fixture: the folder after the last step, and what each command block printed and took."""
    @pytest.fixture(scope="module")
    def followed(tmp_path_factory):
        folder = tmp_path_factory.mktemp("tutorial")
        return folder, follow(f"docs/{tutorial}", folder)
    return followed


def assert_built_soon_and_keeps_every_promise(followed):
    """Of the first command block, which builds the program and runs its tests."""
    done, seconds = followed[1][0]
    assert seconds < BUILD_LIMIT
    passed = int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1])
    assert passed > 20 and "FAILED" not in done.stdout
