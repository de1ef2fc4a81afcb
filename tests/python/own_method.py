"""Helpers of the tests of methods in Python: a config of a second, and runs of it."""

import json
import pathlib
import sys

import pytest
from tiny import started

METHODS = pathlib.Path(__file__).resolve().parent / "methods"
MOMENTUM = f"{METHODS / 'momentum.py'}:ServerMomentum"
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/method"
CONFIG = """
name = "own"
threads = 1
model = { path = "builtin:tiny-olmoe", compute_dtype = "float32" }
lora = { rank = 3, alpha = 6 }
data = { task = "builtin", limit = 40 }
clients = { count = 4, budgets = [0.125, 0.25, 0.5, 1.0] }
method = { name = "fedit" }
train = { rounds = 2, local_epochs = 0.5, batch_size = 2, accumulation = 2, optimizer = { lr = 5e-3 } }
evaluate = { tasks = ["builtin:routines"], budgets = [1.0], limit = 2, max_new_tokens = 4, every = 2, as_exported = false }
"""


@pytest.fixture(autouse=True)
def python(monkeypatch):
    """Programs that a test starts by itself run hosts in this Python."""
    monkeypatch.setenv("EVENKEEL_PYTHON", sys.executable)


@pytest.fixture(scope="session")
def config(tmp_path_factory):
    """Returns the file of CONFIG."""
    file = tmp_path_factory.mktemp("config") / "own.toml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="session")
def fedit(config, tmp_path_factory):
    """Returns the folder of a run of CONFIG. Nothing may write there."""
    out = tmp_path_factory.mktemp("fedit") / "run"
    succeeded(config, out)
    return out


@pytest.fixture(scope="session")
def momentum(config, tmp_path_factory):
    """Returns the folder of a run with server momentum of 0.9, whose class is in a file. Nothing may write there."""
    out = tmp_path_factory.mktemp("momentum") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVENKEEL_PYTHON", sys.executable)
        succeeded(config, out, method=MOMENTUM)
    return out



def train(config, out, *words, method=None, **options):
    chosen = ["--method", method] if method else []
    return started("train", config, "--out", out, "--quiet", *chosen, *words, **options)


def succeeded(*arguments, **options):
    done = train(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def adapter(out):
    return (out / "adapter/adapter_model.safetensors").read_bytes()


def tensors(out):
    from safetensors.numpy import load_file

    return load_file(out / "adapter/adapter_model.safetensors")


def records(out):
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
