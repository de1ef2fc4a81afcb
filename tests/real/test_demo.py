"""Runs `evenkeel demo --real` as a new user does, with the model that the other tests share."""

import os
import re

import pytest

from tiny import started


@pytest.mark.skipif("EVENKEEL_NIGHTLY" not in os.environ, reason="takes three minutes of processor time: .ci/nightly runs it")
def test_the_model_learns_what_four_organisations_know(smollm2, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # two threads, where OMP_NUM_THREADS=1 promises one
    done = started("demo", "--real", "--model", smollm2, cwd=tmp_path, timeout=1800)
    assert done.returncode == 0, done.stderr
    before, after = map(int, re.search(r"^all four +(\d+) of 48 +(\d+) of 48$", done.stdout, re.M).groups())
    assert before <= 2 and after >= 36, done.stdout
