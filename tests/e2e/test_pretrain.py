"""Tests `evenkeel pretrain`: the loss falls, an interrupted run ends with the same bits, bad input is one line."""

import functools
import json
import math
import os
import pathlib
import random
import signal
import subprocess
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

PROGRAM = os.environ["EVENKEEL_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]

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
    return subprocess.run([PROGRAM, "pretrain", *map(str, arguments)], capture_output=True, text=True, timeout=600)


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
    assert not list(out.glob("checkpoint*")) and not (out / ".lock").exists()


@pytest.mark.parametrize("optimizer", [
    (), ("--set", "train.optimizer={ name = 'sgd', lr = 0.02, momentum = 0.9, weight_decay = 0.0 }"), ("--set", "train.top_k=[1, 2]"),
], ids=["adamw", "sgd", "drawn top_k"])
def test_interrupted_run_ends_with_the_same_bits(optimizer, config, tmp_path):
    file = config(200)
    assert pretrain(file, "--out", tmp_path / "straight", *optimizer).returncode == 0
    broken = tmp_path / "broken"
    process = subprocess.Popen([PROGRAM, "pretrain", file, "--out", str(broken), *optimizer], stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 600
    while not list(broken.glob("checkpoint-*.safetensors")) and time.time() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130, stderr
    assert "--resume" in stderr
    done = pretrain(file, "--out", broken, "--resume", *optimizer)
    assert done.returncode == 0, done.stderr
    assert (broken / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()


def test_every_step_draws_its_experts_per_token_from_the_list(config, tmp_path):
    """An entry that stands twice is drawn twice as often."""
    file = config(90)
    drawn = {}
    for name, top_k in (("plain", []), ("two", [2]), ("one", [1]), ("mixed", [1, 2, 2]), ("again", [1, 2, 2])):
        out = tmp_path / name
        done = pretrain(file, "--out", out, "--set", f"train.top_k={top_k}", "--set", "train.log_every=1")
        assert done.returncode == 0, done.stderr
        drawn[name] = [row.get("top_k") for row in curve(out) if "loss" in row]
    weights = {name: (tmp_path / name / "model.safetensors").read_bytes() for name in drawn}
    assert drawn["plain"] == [None] * 90 and drawn["two"] == [2] * 90 and drawn["one"] == [1] * 90
    assert weights["plain"] == weights["two"], "2 is the number of config.json"
    assert len({weights["plain"], weights["one"], weights["mixed"]}) == 3
    assert 18 <= drawn["mixed"].count(1) <= 42 and drawn["mixed"].count(1) + drawn["mixed"].count(2) == 90  # 30 on average
    assert drawn["mixed"] == drawn["again"] and weights["mixed"] == weights["again"]


def test_the_large_world_is_another_text(config, tmp_path):
    """Its tasks are trained and evaluated on the model that was pre-trained on it."""
    file, out = config(20), {}
    for world in ("small", "large"):
        out[world] = tmp_path / world
        done = pretrain(file, "--out", out[world], "--set", f"data.world={world}", "--set", "model.dtype=bfloat16")
        assert done.returncode == 0, done.stderr
    assert (out["small"] / "tokenizer.json").read_bytes() != (out["large"] / "tokenizer.json").read_bytes()
    changes = ["model.path=" + str(out["large"]), "data.task=builtin_large", "data.limit=40", "data.cutoff=200", "method.name=fedit",
               "data.partition={ kind = 'budget', key = 'topic' }", "clients.budgets=[0.5, 1.0]", "clients.count=2", "clients.participation=1.0",
               "train.rounds=1", "evaluate.limit=1", "evaluate.budgets=[1.0]", "evaluate.tasks=['builtin_large']", "evaluate.max_new_tokens=2"]
    done = subprocess.run([PROGRAM, "train", str(ROOT / "configs/tiny/train.toml"), "--out", str(tmp_path / "run"), *(word for one in changes for word in ("--set", one))],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    scores = [json.loads(line) for line in (tmp_path / "run/evaluations.jsonl").read_text().splitlines()]
    assert {score["task"] for score in scores} == {f"builtin_large:{name}" for name in ("animals", "plants", "towns", "machines", "facts")}


BYTES = MODEL | {"vocab_size": 258}  # the tokenizer has the bytes and two special tokens, so a byte is a token


def mean_loss(model, sequences, *more):
    """Returns the mean loss per target token of `evenkeel score`."""
    file = model.parent / "sequences.jsonl"
    file.write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in sequences))
    words = [PROGRAM, "score", "--model", model, "--input", file, "--json", *more]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    sums = [json.loads(line)["logprob"] for line in done.stdout.splitlines()]
    return -sum(sums) / sum(len(ids) - 1 for ids in sequences)


def test_the_validation_loss_is_that_of_the_last_sequences(config, tmp_path):
    """The text ends with digits, which occur nowhere else in it."""
    file, out, text = config(30), tmp_path / "model", tmp_path / "text.txt"
    (tmp_path / "config.json").write_text(json.dumps(BYTES))
    digits = "".join(random.Random(3).choices("0123456789", k=280))
    text.write_text("the cat sat on the mat, the dog lay by the door; " * 80 + digits)
    changes = (f"data.files=['{text}']", "data.documents=0", "train.optimizer={ lr = 0.01 }")
    done = pretrain(file, "--out", out, *(word for one in changes for word in ("--set", one)))
    assert done.returncode == 0, done.stderr
    words = [PROGRAM, "tokenize", "--model", out, "--input", text]
    ids = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=600).stdout) + [MODEL["eos_token_id"]]
    sequences = [ids[start:start + 48] for start in range(0, len(ids) - 47, 48)]
    held_out = sequences[-math.ceil(0.05 * len(sequences)):]
    assert len(ids) == 4201 and len(held_out) == 5  # the batches have four
    losses = [row for row in curve(out) if "validation_loss" in row]
    assert [row["top_k"] for row in losses] == [2, 1]
    for row in losses:
        for key, gates in (("validation_loss", "olmoe_native"), ("validation_loss_renorm_selected", "renorm_selected")):
            score = mean_loss(out, held_out, "--top-k", row["top_k"], "--gate-norm", gates)
            assert row[key] == pytest.approx(score, rel=1e-5), (key, row["top_k"])
    assert losses[0]["validation_loss"] > mean_loss(out, sequences[:5]) + 1


@pytest.fixture(scope="module")
def descend(tmp_path_factory):
    """Returns a function that pre-trains by plain gradient descent, by default one step, and returns the weights.

    The text is one letter. All tokens have the same hidden state, so all steps have nearly the same gradient, and that
    of a router follows from its scores.
    """
    folder = tmp_path_factory.mktemp("descent")
    (folder / "config.json").write_text(json.dumps(BYTES | {"initializer_range": 0.1, "rms_norm_eps": 1e-9}))
    (folder / "text.txt").write_text("a" * 400)
    (folder / "pretrain.toml").write_text(CONFIG.format(folder=folder, steps=1))
    data = ("--set", f"data.files=['{folder}/text.txt']", "--set", "data.documents=0", "--set", "data.validation=0.0")

    @functools.cache
    def weights(lr=1.0, **changes):
        out = folder / f"model-{len(list(folder.iterdir()))}"
        train = {"warmup_steps": 0, "clip_norm": 0.0, "load_balance": 0.0, "router_z": 0.0, **changes,
                 "optimizer": f"{{ name = 'sgd', lr = {lr}, weight_decay = 0.0 }}"}
        changed = [word for key, value in train.items() for word in ("--set", f"train.{key}={value}")]
        done = pretrain(folder / "pretrain.toml", "--out", out, *data, *changed)
        assert done.returncode == 0, done.stderr
        return {name: tensor.astype(np.float64) for name, tensor in load_file(out / "model.safetensors").items()}
    return weights


def test_the_gradients_of_a_router_are_those_of_both_balance_losses(descend):
    """Both are means over two layers: E sum_i f_i P_i with f_i = 1 / K for the chosen experts, and logsumexp(s)^2."""
    name, layers, experts, top_k = "model.layers.1.mlp.gate.weight", 2, 6, 2
    balance_ED = descend()[name] - descend(load_balance=0.5)[name]
    z_ED = descend()[name] - descend(router_z=0.25)[name]
    hidden_D = z_ED.sum(axis=0)
    hidden_D *= math.sqrt(hidden_D.size) / np.linalg.norm(hidden_D)  # it is behind a norm with weights of 1
    scores_E = descend(lr=1e-30)[name] @ hidden_D
    total = np.exp(scores_E).sum()
    p_E, chosen_E = np.exp(scores_E) / total, scores_E >= np.sort(scores_E)[-top_k]
    balance_E = experts / top_k * p_E * (chosen_E - p_E[chosen_E].sum())
    for found_ED, gradient_E in ((balance_ED, 0.5 * balance_E), (z_ED, 0.25 * 2 * math.log(total) * p_E)):
        np.testing.assert_allclose(found_ED, np.outer(gradient_E, hidden_D) / layers, rtol=1e-3, atol=1e-5)
    assert np.ptp(scores_E) > 0.5, "unequal experts"


def test_steps_are_as_long_as_clipping_and_schedule_say(descend):
    def moved(**changes):
        start, end = descend(lr=1e-30), descend(**changes)
        return np.concatenate([(start[name] - end[name]).ravel() for name in start])

    free, clipped = moved(), moved(clip_norm=0.5)
    norm = np.linalg.norm(free)
    assert norm > 1
    np.testing.assert_allclose(clipped, free * 0.5 / norm, atol=1e-6)
    # 1/4 + 1/2 + 3/4 + 1 in the warm-up, then 1/4 + 3/4 x (1 + 3/4 + 1/4 + 0)
    many = moved(steps=8, clip_norm=1e-3, warmup_steps=4, final_lr_ratio=0.25)
    assert np.linalg.norm(many) == pytest.approx(5e-3, rel=1e-3)


def test_a_model_without_experts_draws_none(config, tmp_path):
    file = config(2)
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["olmo"]))
    done = pretrain(file, "--out", tmp_path / "out", "--set", "train.top_k=[1]")
    assert done.returncode == 1 and "train.top_k holds 1, allowed: an empty list" in done.stderr and not (tmp_path / "out").exists(), done.stderr


def without_speed(folder):
    return [{key: value for key, value in row.items() if key not in ("tokens_per_second", "checksum")} for row in curve(folder)]


def test_killed_run_ends_with_the_same_bits_and_each_line_once(config, tmp_path):
    file, straight, out = config(60), tmp_path / "straight", tmp_path / "killed"
    began = time.monotonic()
    assert pretrain(file, "--out", straight).returncode == 0
    duration, clock = time.monotonic() - began, random.Random(3)
    for _ in range(8):
        process = subprocess.Popen([PROGRAM, "pretrain", file, "--out", str(out), "--resume"], stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=clock.uniform(0.15, 0.8) * duration)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    done = pretrain(file, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (out / name).read_bytes() == (straight / name).read_bytes()
    assert without_speed(out) == without_speed(straight)
    assert {path.name for path in out.iterdir()} == {path.name for path in straight.iterdir()}
    assert pretrain(file, "--out", out, "--resume").returncode == 0  # nothing is left to do


def interrupted(file, out, *more):
    """Starts a run and interrupts it after its first checkpoint."""
    process = subprocess.Popen([PROGRAM, "pretrain", file, "--out", str(out), *more], stderr=subprocess.PIPE, text=True)
    while not list(out.glob("checkpoint-*.safetensors")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)


def test_a_damaged_checkpoint_is_rejected_and_not_changed(config, tmp_path):
    file, out = config(400), tmp_path / "out"
    interrupted(file, out)
    tensors = next(out.glob("checkpoint-*.safetensors")).name
    for name in (tensors, "checkpoint.json", "pretrain.jsonl", "tokenizer.json"):
        data = (out / name).read_bytes()
        (out / name).write_bytes(data[:len(data) // 2] + bytes([data[len(data) // 2] ^ 4]) + data[len(data) // 2 + 1:])
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        done = pretrain(file, "--out", out, "--resume")
        assert done.returncode == 1 and name in done.stderr, done.stderr
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before
        (out / name).write_bytes(data)
    (out / "checkpoint.json").unlink()
    done = pretrain(file, "--out", out, "--resume")
    assert done.returncode == 1 and "checkpoint.json" in done.stderr, done.stderr


def test_a_new_run_into_an_interrupted_one_is_told_how_to_resume_it(config, tmp_path):
    file, out = config(400), tmp_path / "out"
    interrupted(file, out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = pretrain(file, "--out", out)
    assert done.returncode == 1 and f"{out} holds a run already: choose another --out, or resume it with: " in done.stderr, done.stderr
    assert f"pretrain {file} --out {out} --resume" in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("changed", ["text.txt", "config.json"])
def test_a_run_does_not_go_on_with_another_text_or_model(changed, config, tmp_path):
    file, out, text = config(400), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("The fox sleeps in its den. " * 40)
    more = ["--set", f"data.files=['{text}']"]
    interrupted(file, out, *more)
    path = tmp_path / changed
    before = path.read_text()
    path.write_text(before.replace("fox", "owl").replace("10000.0", "20000.0"))
    done = pretrain(file, "--out", out, "--resume", *more)
    assert done.returncode == 1 and f"{path} has changed since {out} began" in done.stderr, done.stderr
    path.write_text(before)
    assert pretrain(file, "--out", out, "--resume", *more).returncode == 0


def test_a_folder_is_locked_by_one_process(config, tmp_path):
    file, out = config(400), tmp_path / "out"
    process = subprocess.Popen([PROGRAM, "pretrain", file, "--out", str(out)], stderr=subprocess.DEVNULL)
    while not list(out.glob("checkpoint-*.safetensors")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGSTOP)  # it keeps its lock, and does not end before the other process looks
    done = pretrain(file, "--out", out, "--resume")
    process.kill()
    process.wait()
    assert done.returncode == 1 and f"in use by process {process.pid} on " in done.stderr, done.stderr


@pytest.mark.parametrize("setting, words", [
    ("train.steps=0", "train.steps is 0"),
    ("train.stepz=3", "train.stepz"),
    ("data.documents=0", "no text"),
    ("model.config='nowhere.json'", "nowhere.json"),
    ("data.files=['missing.txt']", "missing.txt"),
    ("train.sequence_length=257", "train.sequence_length is 257, allowed: up to 256, the positions of"),
])
def test_bad_input_is_reported_in_one_line(config, tmp_path, setting, words):
    done = pretrain(config(), "--out", tmp_path / "out", "--set", setting)
    assert done.returncode == 1
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("evenkeel:")]) == 1


def test_unsuitable_text_leaves_the_folder_usable_for_another_config(config, tmp_path):
    out = tmp_path / "out"
    done = pretrain(config(), "--out", out, "--set", "data.documents=1", "--set", "train.sequence_length=250")
    assert done.returncode == 1 and "too few for one sequence of 250" in done.stderr, done.stderr
    assert pretrain(config(5), "--out", out).returncode == 0


def test_a_text_that_is_all_held_out_is_not_called_short(config, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"word{i}" for i in range(60)))  # 172 tokens
    done = pretrain(config(), "--out", tmp_path / "out", "--set", "data.documents=0", "--set", f"data.files=['{text}']", "--set",
                    "train.sequence_length=100")
    assert done.returncode == 1, done.stderr
    assert "data.validation is 0.05 and holds out all sequences of the text, of which there are 1" in done.stderr, done.stderr


def test_existing_output_is_not_changed(config, tmp_path):
    out = tmp_path / "taken"
    out.mkdir()
    (out / "keep").write_text("mine")
    done = pretrain(config(), "--out", out)
    assert done.returncode == 1 and str(out) in done.stderr
    assert [f.name for f in out.iterdir()] == ["keep"]


def shape(family, **more):
    common = {key: MODEL[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                                          "num_key_value_heads", "hidden_act", "rope_theta", "max_position_embeddings", "tie_word_embeddings",
                                          "initializer_range", "eos_token_id", "torch_dtype")}
    return {"model_type": family, **common, **more}


FAMILIES = {
    "olmoe": MODEL | {"num_experts": 5, "num_experts_per_tok": 4},
    "qwen3_moe": shape("qwen3_moe", head_dim=12, moe_intermediate_size=20, num_experts=6, num_experts_per_tok=4, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[], rms_norm_eps=1e-6),
    "mixtral": shape("mixtral", num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5),
    "qwen2_moe": shape("qwen2_moe", moe_intermediate_size=20, num_experts=6, num_experts_per_tok=4, shared_expert_intermediate_size=28),
    "deepseek_v3": shape("deepseek_v3", num_key_value_heads=None, kv_lora_rank=10, q_lora_rank=14, qk_nope_head_dim=8, qk_rope_head_dim=4,
                         v_head_dim=6, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=20, n_group=2, topk_group=1,
                         first_k_dense_replace=1),
    "granitemoe": shape("granitemoe", num_local_experts=6, num_experts_per_tok=3, rms_norm_eps=1e-6, embedding_multiplier=3.0,
                        logits_scaling=2.0, residual_multiplier=0.6, attention_multiplier=0.3),
    "olmo": shape("olmo"),
}


def score(model, *more):
    done = subprocess.run([PROGRAM, "score", "--model", model, "--input", "-", "--json", *map(str, more)], input='{"text": "Once upon a time"}\n',
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["token_logprobs"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_pretrained_with_the_experts_per_token_of_its_config(family, config, tmp_path):
    """Both layouts of the experts must give the same model."""
    file = config(6)
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES[family]))
    found = {}
    for experts in ("original", "fused"):
        out = tmp_path / experts
        done = pretrain(file, "--out", out, "--experts", experts)
        assert done.returncode == 0, done.stderr
        made = json.loads((out / "config.json").read_text())
        assert {key: made[key] for key in FAMILIES[family]} == FAMILIES[family]
        found[experts] = score(out)
    assert found["original"] == found["fused"]
    top_k = FAMILIES[family].get("num_experts_per_tok", 0)
    budgets = {top_k >> i for i in range(top_k.bit_length())}
    assert {row["top_k"] for row in curve(tmp_path / "original") if "top_k" in row} == (budgets or {0})
    with open(tmp_path / "fused/model.safetensors", "rb") as weights:
        header = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
    assert any("gate_up_proj" in name or "input_linear" in name for name in header) == (family != "olmo")


def test_set_model_config_selects_another_family(config, tmp_path):
    file = config(2)
    (tmp_path / "other.json").write_text(json.dumps(FAMILIES["mixtral"] | {"num_experts_per_tok": 1}))
    done = pretrain(file, "--out", tmp_path / "out", "--set", f"model.config={tmp_path}/other.json")
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "out/config.json").read_text())
    assert (made["model_type"], made["num_experts_per_tok"]) == ("mixtral", 1)


@pytest.mark.parametrize("change, says", [({"model_type": "bert"}, 'model_type is "bert"'), ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
                                          ({"num_experts": 0}, "num_experts")])
def test_an_invalid_model_config_is_rejected_with_its_key(change, says, config, tmp_path):
    file = config(2)
    (tmp_path / "config.json").write_text(json.dumps(MODEL | change))
    done = pretrain(file, "--out", tmp_path / "a/out")
    assert done.returncode == 1 and says in done.stderr and "config.json" in done.stderr, done.stderr
    assert not (tmp_path / "a").exists()
    done = pretrain(config(2), "--out", tmp_path / "a/out", "--experts", "both")
    assert done.returncode == 1 and "--experts is both, allowed: original, fused" in done.stderr and not (tmp_path / "a").exists()
