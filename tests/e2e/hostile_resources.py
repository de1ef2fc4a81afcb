"""Checks scarce memory and descriptors, closed streams, and inputs that are not files: the program works or prints one
line. Full or closed outputs are tested in test_output.py, full disks in test_sizes.py.
"""

import os
import resource

import pytest

from hostile import refused
from tiny import evenkeel, succeed
from tiny import small_run as run  # noqa: F401


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "ids.jsonl").write_text('{"ids": [7, 8, 9]}\n')
    return tmp_path / "ids.jsonl"


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


READERS = {
    "score": ["score", "--model", "<model>", "--input", "<texts>"],
    "generate": ["generate", "--model", "<model>", "--prompt", "Once", "--max-new-tokens", "2"],
    "tokenize": ["tokenize", "--model", "<model>", "--input", "<texts>"],
    "evaluate": ["evaluate", "--model", "<model>", "--tasks", "builtin:facts", "--limit", "1"],
    "report": ["report", "<run>"],
}


def words_of(command, run, tiny_model, texts):
    places = {"<model>": tiny_model, "<texts>": texts, "<run>": run}
    return [places.get(word, word) for word in READERS[command]]


def test_other_closed_streams_change_nothing(tmp_path):
    words = ["init", "configs/tiny/model.json", "--seed", "3", "--out"]
    succeed(*words, tmp_path / "whole")
    for stream in (0, 2):
        evenkeel(*words, tmp_path / str(stream), preexec_fn=lambda: os.close(stream))
        assert (tmp_path / str(stream) / "model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


# --- memory and descriptors ---

@pytest.mark.parametrize("descriptors", [5, 8])
@pytest.mark.parametrize("command", ["score", "report", "tokenize"])
def test_few_descriptors_give_the_same_result_or_one_line(run, tiny_model, texts, descriptors, command):
    """The program works or fails with one line. It never crashes or gives another result."""
    words = words_of(command, run, tiny_model, texts)
    whole = succeed(*words).stdout
    done = evenkeel(*words, preexec_fn=limited(resource.RLIMIT_NOFILE, descriptors))
    if done.returncode == 0:
        assert done.stdout == whole
    else:
        assert done.returncode in (1, 127) and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("mebibytes", [700, 1000])
@pytest.mark.parametrize("command", ["score", "generate", "evaluate", "report"])
def test_little_address_space_is_survived_or_reported_in_one_line(run, tiny_model, texts, mebibytes, command):
    """The program works or fails with one line. It is never killed by a signal."""
    done = evenkeel(*words_of(command, run, tiny_model, texts), preexec_fn=limited(resource.RLIMIT_AS, mebibytes << 20))
    if done.returncode == 127:
        return  # the dynamic loader fails
    lines = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert done.returncode in (0, 1, 2) and len(lines) == (done.returncode != 0), (done.returncode, done.stderr)


# --- inputs that are not files ---

@pytest.mark.parametrize("device", ["/dev/null", "/dev/stdin"])
def test_a_device_as_input_is_rejected(tiny_model, tmp_path, device):
    refused("score", "--model", tiny_model, "--input", device, says=[device], untouched=tmp_path, stdin=-3)
