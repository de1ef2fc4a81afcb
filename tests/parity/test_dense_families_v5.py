"""Runs the tests of test_dense_families.py with transformers 5 and PEFT 0.21."""
from test_dense_families import *  # noqa: F401,F403
