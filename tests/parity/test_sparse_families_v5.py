"""The same tests beside transformers 5: its config form, its fused experts, its files."""
from test_sparse_families import *  # noqa: F401,F403
