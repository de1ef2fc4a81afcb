"""A tutorial of docs/, followed to the letter in an empty folder: its files are written, its commands are run."""

import os
import pathlib
import re
import resource
import subprocess

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
