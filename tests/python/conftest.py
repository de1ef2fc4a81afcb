"""Provides the package of python/ and the model and run of tests/e2e/tiny.py."""

import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS.parent / "python"), str(TESTS / "e2e")]

from own_method import config, fedit, momentum  # noqa: E402, F401
from tiny import small_run, tiny_model  # noqa: E402, F401
