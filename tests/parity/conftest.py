"""Parity tests compare the built program with transformers and PEFT in the same process tree, on random models."""
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_draws_every_time():
    torch.manual_seed(20240924)
