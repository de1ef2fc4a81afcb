"""Runs the tests of test_olmo.py with transformers 5."""
from test_olmo import *  # noqa: F401,F403
