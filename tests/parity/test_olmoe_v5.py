"""Runs the tests of test_olmoe.py with transformers 5: its config form, fused experts and files."""
from test_olmoe import *  # noqa: F401,F403
