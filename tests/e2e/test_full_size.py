"""OLMoE-1B-7B's size with random weights: made, trained, killed, resumed to the same bits and exported, on 24 GiB.

Opt-in, for half an hour of both cores, 17 GiB of memory and 30 GB of disk:

    EVENKEEL_FULL_SIZE=/a/folder/with/space EVENKEEL_DATA=/data \\
    EVENKEEL_PROGRAM=$PWD/build/evenkeel .venv-v4/bin/python -m pytest -s tests/e2e/test_full_size.py

The tokenizer is $EVENKEEL_DATA/tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json. What was measured is printed.
"""

import hashlib
import os
import pathlib
import shutil

import pytest

from measured import Measured
from tiny import ROOT

SPACE = os.environ.get("EVENKEEL_FULL_SIZE")
TOKENIZER = pathlib.Path(os.environ.get("EVENKEEL_DATA", "")) / "tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json"
CONFIG = ROOT / "configs/full-size/train.toml"
GIB = 1 << 30

pytestmark = [pytest.mark.skipif(not SPACE, reason="EVENKEEL_FULL_SIZE names no folder with 30 GB of space"),
              pytest.mark.skipif(not TOKENIZER.exists(), reason=f"{TOKENIZER} is not there")]


def say(what, measured):
    print(f"{what}: {measured.seconds:.0f} s, peak {measured.anonymous / GIB:.2f} GiB anonymous, "
          f"{measured.file_backed / GIB:.2f} GiB file-backed", flush=True)


def run(what, *arguments):
    measured = Measured(*arguments)
    measured.finish()
    say(what, measured)
    return measured


def sha256(file):
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def adapter_of(folder):
    return sha256(folder / "adapter/adapter_model.safetensors")


@pytest.fixture(scope="module")
def space():
    folder = pathlib.Path(SPACE) / "evenkeel-full-size"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def model(space):
    made = run("init", "init", "configs/full-size/model.json", "--out", space / "model", "--dtype", "bfloat16")
    assert made.anonymous < GIB
    shutil.copy(TOKENIZER, space / "model/tokenizer.json")
    return space / "model"


def train(model, out, *more):
    return ["train", CONFIG, "--out", out, "--set", f"model.path={model}", *more]


def test_a_run_of_the_published_size_is_killed_and_resumes_to_the_same_bits(model, space):
    whole = run("train", *train(model, space / "whole"))
    assert whole.anonymous < 12 * GIB
    killed = Measured(*train(model, space / "killed"))
    arrived = space / "killed/checkpoint"
    assert not killed.wait(until=lambda: list(arrived.glob("uploads-1/*.json")))
    killed.process.kill()
    killed.process.communicate()
    run("resume", "train", CONFIG, "--out", space / "killed", "--resume")
    assert adapter_of(space / "killed") == adapter_of(space / "whole")
    print("adapter sha256", adapter_of(space / "whole"))
    run("export", "export", "--run", space / "killed", "--out", space / "exported")
    assert sha256(space / "exported/adapter_model.safetensors") == adapter_of(space / "whole")
