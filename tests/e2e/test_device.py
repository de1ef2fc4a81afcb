"""Tests `--device` and `model.engine`: a missing GPU is one line, and LibTorch's operators give the same training as
the CPU kernels.
"""

import tomllib

import pytest

from tiny import CONFIG, evenkeel, lines, one_line, settings, succeed


@pytest.fixture(scope="module")
def has_gpu(tiny_model):
    return evenkeel("generate", "--model", tiny_model, "--prompt", "Once", "--max-new-tokens", "1", "--device", "cuda").returncode == 0


def pretraining(folder, model):
    """Writes the config of a short pre-training of a model of the tiny model's shape."""
    file = folder / "pretrain.toml"
    file.write_text(f"""
[model]
config = "{model}/config.json"
tokenizer = "{model}/tokenizer.json"
dtype = "float32"
[data]
documents = 60
validation = 0.05
[train]
steps = 12
sequence_length = 24
batch_size = 3
warmup_steps = 2
log_every = 1
checkpoint_every = 5
""")
    return file


def curve(out):
    """Returns the losses of a pre-training: of its steps, then of the held-out text."""
    return [row.get("loss", row.get("validation_loss")) for row in lines(out / "pretrain.jsonl")]


def losses(out):
    return [line["loss"] for line in lines(out / "rounds.jsonl")]


@pytest.mark.parametrize("command", [
    ["train", CONFIG, "--out", "{tmp}/run"],
    ["evaluate", "--model", "{model}", "--tasks", "builtin", "--limit", "1"],
    ["generate", "--model", "{model}", "--prompt", "Once", "--max-new-tokens", "1"],
    ["score", "--model", "{model}", "--input", "configs/tiny/model.json"],
    ["bertscore", "--model", "{model}", "--input", "configs/tiny/model.json"],
    ["evaluate", "--model", "{model}", "--tasks", "builtin", "--limit", "1", "--bert-encoder", "{model}"],
    ["pretrain", "{pretraining}", "--out", "{tmp}/run"],
])
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_missing_gpu_is_reported_in_one_line(has_gpu, tiny_model, tmp_path, command, device):
    if has_gpu:
        pytest.skip("there is a GPU")
    words = [str(word).format(tmp=tmp_path, model=tiny_model, pretraining=pretraining(tmp_path, tiny_model)) for word in command]
    model = settings(model__path=tiny_model) if command[0] == "train" else []
    one_line(evenkeel(*words, *model, "--device", device), f"is {device}, but this", "--device cpu")
    assert not (tmp_path / "run").exists()


def test_auto_is_the_cpu_without_a_gpu(has_gpu, tiny_model, tmp_path):
    if has_gpu:
        pytest.skip("there is a GPU")
    out = tmp_path / "run"
    succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1), "--device", "auto")
    model = tomllib.loads((out / "config.toml").read_text())["model"]
    assert (model["device"], model["engine"]) == ("cpu", "kernels")


def test_both_engines_train_alike_and_a_run_may_switch_engines(tiny_model, tmp_path):
    few = {"model__path": tiny_model, "evaluate__limit": 1}
    succeed("train", CONFIG, "--out", tmp_path / "kernels", *settings(**few))
    succeed("train", CONFIG, "--out", tmp_path / "aten", *settings(**few, model__engine="aten"))
    again = succeed("train", CONFIG, "--out", tmp_path / "again", *settings(**few, model__engine="aten"))
    assert again.returncode == 0
    ours, theirs = losses(tmp_path / "kernels"), losses(tmp_path / "aten")
    assert theirs == pytest.approx(ours, abs=1e-3) and losses(tmp_path / "again") == theirs
    assert tomllib.loads((tmp_path / "aten/config.toml").read_text())["model"]["engine"] == "aten"
    int8 = settings(model__base_format="int8", model__engine="aten")
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "int8", *int8), "model.base_format is int8", "aten")
    other = succeed("train", CONFIG, "--out", tmp_path / "aten", "--resume", "--set", "model.engine=kernels")
    assert "computed as this command says (model.device, model.engine" in other.stderr


def test_both_engines_pretrain_alike_and_a_run_may_switch_engines(tiny_model, tmp_path):
    file = pretraining(tmp_path, tiny_model)
    succeed("pretrain", file, "--out", tmp_path / "kernels")
    for out in ("aten", "again"):
        succeed("pretrain", file, "--out", tmp_path / out, "--set", "model.engine=aten")
    ours, theirs = curve(tmp_path / "kernels"), curve(tmp_path / "aten")
    assert theirs == pytest.approx(ours, abs=1e-4) and len(ours) > 12 and ours[11] < ours[0]
    weights = [(tmp_path / out / "model.safetensors").read_bytes() for out in ("kernels", "aten", "again")]
    assert weights[0] != weights[1] == weights[2]
    assert tomllib.loads((tmp_path / "aten/pretrain.toml").read_text())["model"]["engine"] == "aten"
    other = succeed("pretrain", file, "--out", tmp_path / "aten", "--resume")
    assert "model.device or engine differs" in other.stderr
    assert "model.device or engine" not in succeed("pretrain", file, "--out", tmp_path / "kernels", "--resume", "--device", "auto").stderr
    one_line(evenkeel("pretrain", file, "--out", tmp_path / "aten", "--resume", "--set", "seed=8", "model.engine=aten"), "the configuration differs")


@pytest.mark.parametrize("words, says", [
    (["--device", "gpu"], '--device: "gpu", allowed: cpu, cuda, cuda:0 and so on, auto'),
    (["--device", "cuda:x"], '--device: "cuda:x", allowed'), (["--device", ""], "--device"),
    (["--set", "model.device=tpu"], 'model.device is "tpu", allowed: cpu, cuda'), (["--set", "model.device=4"], "model.device"),
    (["--device", "cuda", "--set", "model.engine=kernels"], 'model.engine is "kernels", which compute on processors, allowed: aten'),
    (["--set", "model.engine=cuda"], 'model.engine is "cuda", allowed: auto, kernels, aten'),
    (["--set", "model.dtype=int8"], 'model.dtype is "int8", allowed: checkpoint, float32'),
    (["--set", "model.base_format=int8"], "model.base_format")])
def test_pretraining_refuses_what_no_device_or_engine_computes(tiny_model, tmp_path, words, says):
    one_line(evenkeel("pretrain", pretraining(tmp_path, tiny_model), "--out", tmp_path / "run", *words), says)
    assert not (tmp_path / "run").exists()
