"""Tests a model of OLMoE-1B-7B's size with random weights. It is created, trained by eight unequal clients, killed,
resumed to the same bits and exported on 24 GiB. Another run over an int8 base takes 13 GiB.

The test is opt-in. It takes an hour of both cores, 20 GiB of memory and 40 GB of disk:

    EVENKEEL_FULL_SIZE=/a/folder/with/space EVENKEEL_DATA=/data \\
    EVENKEEL_PROGRAM=$PWD/build/evenkeel .venv-v4/bin/python -m pytest -s tests/e2e/test_full_size.py

The tokenizer is $EVENKEEL_DATA/tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json. The test prints what it measures.
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

pytestmark = [pytest.mark.skipif(not SPACE, reason="EVENKEEL_FULL_SIZE names no folder with 40 GB of space"),
              pytest.mark.skipif(not TOKENIZER.exists(), reason=f"{TOKENIZER} is not there")]


def say(what, measured):
    print(f"{what}: {measured.seconds:.0f} s, peak {measured.resident / GIB:.2f} GiB, {measured.anonymous / GIB:.2f} anonymous, "
          f"{measured.file_backed / GIB:.2f} file-backed", flush=True)


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
    assert whole.anonymous < 12 * GIB and whole.resident < 20 * GIB
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


def test_a_run_over_an_int8_base_fits_a_smaller_machine(model, space):
    made = run("train, int8, which makes the base", *train(model, space / "int8", "--set", "model.base_format=int8"))
    again = run("train, int8, again", *train(model, space / "int8-again", "--set", "model.base_format=int8"))
    assert max(made.resident, again.resident) < 13 * GIB
    assert adapter_of(space / "int8") == adapter_of(space / "int8-again") != adapter_of(space / "whole")
