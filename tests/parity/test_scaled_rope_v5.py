"""Runs the tests of test_scaled_rope.py with transformers 5."""
from test_scaled_rope import *  # noqa: F401,F403
