"""A tutorial of docs/, followed to the letter in an empty folder: its files are written, its commands are run."""

import os
import pathlib
import re
import resource
import subprocess

import pytest

from tiny import PROGRAM, ROOT

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
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


def follow(tutorial, folder):
    """What each command block printed and took, after all files were written into `folder`."""
    blocks = BLOCK.findall((ROOT / "docs" / tutorial).read_text())
    for language, name, text in blocks:
        if language != "sh":
            assert name, f"a {language} block has no file name"
            (folder / name).write_text(text)
    return [shell(text, folder) for language, _, text in blocks if language == "sh"]


def followed_once(tutorial):
    """A fixture: the folder after the last step, and what each command block printed and took."""
    @pytest.fixture(scope="module")
    def followed(tmp_path_factory):
        folder = tmp_path_factory.mktemp("tutorial")
        return folder, follow(tutorial, folder)
    return followed


def assert_built_soon_and_keeps_every_promise(followed):
    """Of the first command block, which builds the program and runs its tests."""
    done, seconds = followed[1][0]
    assert seconds < BUILD_LIMIT
    passed = int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1])
    assert passed > 20 and "FAILED" not in done.stdout
