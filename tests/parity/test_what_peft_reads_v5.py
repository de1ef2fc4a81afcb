"""Runs the tests of test_what_peft_reads.py with transformers 5 + PEFT 0.21."""
from test_what_peft_reads import *  # noqa: F401,F403
