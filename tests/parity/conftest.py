"""Compares the built program with transformers and PEFT on random models, in one process tree."""
import pathlib
import sys

import pytest
import torch

sys.path.append(str(pathlib.Path(__file__).parents[1] / "e2e"))  # forked.py

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws_every_time():
    torch.manual_seed(20240924)
