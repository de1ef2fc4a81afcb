"""`evenkeel pretrain`: the curve falls, an interrupted run ends with the same bits, bad input is one line."""

import json
import os
import signal
import subprocess
import time

import pytest

PROGRAM = os.environ["EVENKEEL_PROGRAM"]

MODEL = {
    "model_type": "olmoe", "architectures": ["OlmoeForCausalLM"], "vocab_size": 320, "hidden_size": 48,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": False, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 256, "tie_word_embeddings": False, "attention_bias": False,
    "clip_qkv": None, "initializer_range": 0.02, "eos_token_id": 0, "pad_token_id": 1, "torch_dtype": "float32",
}

CONFIG = """
name = "small"
seed = 7
[model]
config = "{folder}/config.json"
dtype = "float32"
[data]
documents = 300
validation = 0.05
[train]
steps = {steps}
sequence_length = 48
batch_size = 4
warmup_steps = 5
log_every = 5
checkpoint_every = 10
"""


@pytest.fixture
def config(tmp_path):
    def write(steps=30):
        (tmp_path / "config.json").write_text(json.dumps(MODEL))
        file = tmp_path / "pretrain.toml"
        file.write_text(CONFIG.format(folder=tmp_path, steps=steps))
        return str(file)
    return write


def pretrain(*arguments):
    return subprocess.run([PROGRAM, "pretrain", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def curve(folder):
    return [json.loads(line) for line in (folder / "pretrain.jsonl").read_text().splitlines()]


def test_loss_falls_and_the_folder_is_a_model(config, tmp_path):
    out = tmp_path / "model"
    done = pretrain(config(60), "--out", out)
    assert done.returncode == 0, done.stderr
    losses = [row["loss"] for row in curve(out) if "loss" in row]
    assert losses[-1] < 0.8 * losses[0]
    assert {row["top_k"] for row in curve(out) if "top_k" in row} == {1, 2}
    assert {"config.json", "model.safetensors", "tokenizer.json", "pretrain.toml"} <= {f.name for f in out.iterdir()}
    assert not (out / "checkpoint.safetensors").exists()


def test_interrupted_run_ends_with_the_same_bits(config, tmp_path):
    file = config(200)
    assert pretrain(file, "--out", tmp_path / "straight").returncode == 0
    broken = tmp_path / "broken"
    process = subprocess.Popen([PROGRAM, "pretrain", file, "--out", str(broken)], stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 120
    while not (broken / "checkpoint.safetensors").exists() and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "--resume" in stderr
    done = pretrain(file, "--out", broken, "--resume")
    assert done.returncode == 0, done.stderr
    assert (broken / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("setting, words", [
    ("train.steps=0", "train.steps is 0"),
    ("train.stepz=3", "train.stepz"),
    ("data.documents=0", "no text"),
    ("model.config='nowhere.json'", "nowhere.json"),
    ("data.files=['missing.txt']", "missing.txt"),
])
def test_bad_input_is_one_line(config, tmp_path, setting, words):
    done = pretrain(config(), "--out", tmp_path / "out", "--set", setting)
    assert done.returncode == 1
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("evenkeel:")]) == 1


def test_existing_output_is_left_alone(config, tmp_path):
    out = tmp_path / "taken"
    out.mkdir()
    (out / "keep").write_text("mine")
    done = pretrain(config(), "--out", out)
    assert done.returncode == 1 and str(out) in done.stderr
    assert [f.name for f in out.iterdir()] == ["keep"]
