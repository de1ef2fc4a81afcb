"""Tests the adapter folders of runs, nodes and exports: one layout, readable here, and one warning where PEFT does not
apply all factors. Tests of merged weights that no half precision holds are here too.
"""
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from test_extended import arguments, expect_same
from test_federation import DEADLINE, Processes, federation, local_run, run_settings, wait_for
from tiny import CONFIG, evenkeel, one_line, random_model, settings, succeed

FILES = ("adapter_model.safetensors", "adapter_config.json")
GRANITE = {
    "model_type": "granitemoe", "architectures": ["GraniteMoeForCausalLM"], "vocab_size": 1024, "hidden_size": 32,
    "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 12,
    "num_experts_per_tok": 8, "max_position_embeddings": 2048, "eos_token_id": 0, "pad_token_id": 1, "bos_token_id": 2,
    "initializer_range": 0.2, "tie_word_embeddings": False, "logits_scaling": 1.0, "attention_multiplier": 0.35}
IN_017 = "transformers 4.57 + PEFT 0.17 (run): not readable there (loads it without a word and computes something else)"


@pytest.fixture(scope="module")
def granite(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("granite"), GRANITE)


def same_folder(one, other, files=FILES):
    return all((one / file).read_bytes() == (other / file).read_bytes() for file in files)


def likelihood(folder, *flags):
    (folder / "text.jsonl").write_text('{"text": "Is the answer true or false? Please choose."}\n')
    done = succeed("score", *flags, "--input", folder / "text.jsonl", "--json", "--dtype", "float32", "--threads", 1)
    return json.loads(done.stdout)["logprob"]


def test_server_nodes_and_a_local_run_write_one_folder_with_one_warning(granite, tmp_path):
    """PEFT reads GraniteMoE's experts in the fused layout alone, and 0.17 does not."""
    local = local_run(tmp_path, granite, "fedit")
    with Processes() as processes:
        server, nodes, run, _ = federation(processes, tmp_path, granite, "fedit")
        assert wait_for(server, tmp_path / "serve.log") == 0, (tmp_path / "serve.log").read_text()
        for i, node in enumerate(nodes):
            assert wait_for(node, tmp_path / f"site-{i}.log", DEADLINE) == 0
    config = json.loads((local / "adapter/adapter_config.json").read_text())
    assert "block_sparse_moe.experts.gate_up_proj" in config["target_parameters"]
    assert same_folder(local / "adapter", run / "adapter")
    taken, = (tmp_path / "site-0.pem.adapters").iterdir()
    assert same_folder(local / "adapter", taken)
    for log in ("serve.log", "site-0.log"):
        assert (tmp_path / log).read_text().count(IN_017) == 1, (tmp_path / log).read_text()
    checked = succeed("export", "--run", local, "--format", "peft", "--check", "--out", tmp_path / "export")
    assert IN_017 in checked.stdout and "transformers 5 + PEFT 0.21 (run): exact" in checked.stdout
    assert IN_017 in (tmp_path / "export/README.md").read_text()
    assert same_folder(local / "adapter", tmp_path / "export", FILES[:1])


@pytest.mark.parametrize("targets, warnings", [("['q_proj', 'k_proj']", 0), ("['gate_proj', 'up_proj']", 1)])
def test_train_warns_once_of_an_adapter_that_peft_does_not_apply(granite, targets, warnings, tmp_path):
    words = run_settings(granite, "fedit", lora__targets=targets, lora__router_lora="false", train__rounds=1, evaluate__limit=1)
    said = succeed("train", CONFIG, *words, "--out", tmp_path / "run").stderr
    assert said.count("[train] adapter/ of this run: transformers 4.57 + PEFT 0.17 (run): not readable there") == warnings, said
    assert said.count("not readable there") == warnings


@pytest.mark.parametrize("family", ["tiny", "granite"])
@pytest.mark.parametrize("targets", ["['q_proj', 'up_proj']", "['gate_proj', 'up_proj']", "['down_proj']"])
def test_an_adapter_of_some_projections_is_a_start_and_an_adapter_here(family, targets, tiny_model, granite, tmp_path):
    """Projections without an adapter are zeros in the file, which are no adapter to the reader."""
    model = {"tiny": tiny_model, "granite": granite}[family]
    own = dict(lora__targets=targets, lora__router_lora="false", train__rounds=1, evaluate__limit=1)
    succeed("train", CONFIG, *run_settings(model, "fedit", **own), "--out", tmp_path / "run")
    adapter = tmp_path / "run/adapter"
    assert likelihood(tmp_path, "--run", tmp_path / "run") == likelihood(tmp_path, "--model", model, "--adapter", adapter)
    assert likelihood(tmp_path, "--model", model) != likelihood(tmp_path, "--model", model, "--adapter", adapter)
    words = run_settings(model, "fedit", **own, lora__init=f"'{adapter}'")
    done = succeed("train", CONFIG, *words, "--out", tmp_path / "next")
    assert "begin with fresh factors" not in done.stderr
    succeed("export", "--model", model, "--adapter", adapter, "--out", tmp_path / "export")
    assert same_folder(adapter, tmp_path / "export", FILES[:1])


def test_sites_of_unequal_rank_are_written_at_the_highest_and_the_run_goes_on(tiny_model, tmp_path):
    """FLoRIST's mode code keeps for each site as many components as tau asks for."""
    own = dict(method__florist__mode="code", method__florist__tau=0.999993, lora__targets="['q_proj', 'up_proj']", lora__router_lora="false")
    out, reference = tmp_path / "out", tmp_path / "reference"
    succeed("train", CONFIG, "--out", reference, *arguments(tiny_model, 3, "florist", **own))
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 2, "florist", **own))
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=3")
    expect_same(out, reference)
    factors = {name: a for name, a in load_file(out / "adapter" / FILES[0]).items() if "lora_A" in name and a.any()}
    kept = {}
    for name, a in factors.items():
        site = name.split(".")[4], name.split(".")[-3]  # layer and projection
        kept[site] = max(kept.get(site, 0), int(a.any(1).sum()))
    assert len(kept) == 4 and len(set(kept.values())) > 1, kept
    assert {a.shape[0] for a in factors.values()} == {max(kept.values())}
    scored = likelihood(tmp_path, "--model", tiny_model, "--adapter", out / "adapter")
    assert scored == pytest.approx(likelihood(tmp_path, "--run", out, "--rank-eval-mode", "b"), rel=1e-5)
    assert scored != likelihood(tmp_path, "--model", tiny_model)


def half_model(tiny_model, folder):
    folder.mkdir()
    tensors = {name: tensor.half() for name, tensor in load_file(tiny_model / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((tiny_model / "config.json").read_text()) | {"torch_dtype": "float16"}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tiny_model / "tokenizer.json", folder)
    return folder


def adapter_of(folder, model, value):
    """Writes an adapter of rank 1 on the first v_proj that adds value ** 2 to each weight."""
    folder.mkdir()
    out, into = load_file(model / "model.safetensors")["model.layers.0.self_attn.v_proj.weight"].shape
    name = "base_model.model.model.layers.0.self_attn.v_proj.lora_"
    save_file({name + "A.weight": torch.full((1, into), value), name + "B.weight": torch.full((out, 1), value)},
              folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["v_proj"], "layers_to_transform": [0]}))
    return folder


@pytest.mark.parametrize("value, dtype, says", [
    (400.0, "checkpoint", ["does not fit float16", "float16 ends at 65504", "--dtype bfloat16 or float32 or float64"]),
    (1.8439e19, "bfloat16", ["does not fit bfloat16", "--dtype float32 or float64"]),
    (1e20, "float64", ["not finite in float32"]),
])
def test_a_merged_weight_beyond_its_type_is_refused_by_name_and_nothing_is_written(tiny_model, value, dtype, says, tmp_path):
    model = half_model(tiny_model, tmp_path / "m")
    adapter = adapter_of(tmp_path / "a", model, value)
    export = ["export", "--model", model, "--adapter", adapter, "--format", "merged"]
    for more in ((), ("--experts", "fused")):
        done = evenkeel(*export, "--dtype", dtype, "--out", tmp_path / "new/x", *more)
        one_line(done, "model.layers.0.self_attn.v_proj.weight", *says)
        assert not (tmp_path / "new").exists()
    for fits in ("float32", "bfloat16") if value == 400 else ():
        succeed(*export, "--dtype", fits, "--out", tmp_path / fits)
        assert likelihood(tmp_path, "--model", tmp_path / fits) == pytest.approx(
            likelihood(tmp_path, "--model", model, "--adapter", adapter), rel=0.02)


def test_factors_beyond_float32_are_refused_by_name_in_every_adapter_format(tiny_model, tmp_path):
    """rank_pattern and alpha_pattern give scalings that only a factor can hold."""
    adapter = adapter_of(tmp_path / "a", tiny_model, 1e30)
    tensors = load_file(adapter / FILES[0])
    tensors |= {name.replace("v_proj", "q_proj"): tensor.clone() for name, tensor in tensors.items() if "A.weight" in name}
    heads = load_file(tiny_model / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"].shape[0]
    tensors["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"] = torch.full((heads, 1), 1e30)
    save_file(tensors, adapter / FILES[0])
    config = json.loads((adapter / FILES[1]).read_text())
    (adapter / FILES[1]).write_text(json.dumps(config | {"target_modules": ["q_proj", "v_proj"], "alpha_pattern": {"v_proj": 1e12}}))
    for name in ("peft", "peft-fused", "gguf"):
        done = evenkeel("export", "--model", tiny_model, "--adapter", adapter, "--format", name, "--out", tmp_path / "x")
        one_line(done, "lora_b" if name == "gguf" else "lora_B", "float32")
        assert not (tmp_path / "x").exists()
