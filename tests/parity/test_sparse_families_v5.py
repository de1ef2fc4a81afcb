"""Runs the tests of test_sparse_families.py with transformers 5: its config form, fused experts and files."""
from test_sparse_families import *  # noqa: F401,F403
