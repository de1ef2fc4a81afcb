"""Tests that a merged export has what other programs read, and points at nothing that it does not have."""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from tiny import random_model, succeed

GLM = {
    "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "vocab_size": 1024, "hidden_size": 32, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "eos_token_id": 0, "pad_token_id": 1}


def base_of(folder, config):
    """Writes a random model with a tokenizer of both kinds, and names of files that an export does not have."""
    random_model(folder, config)
    (folder / "model/tokenizer.model").write_bytes(bytes(range(256)))
    (folder / "model/tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "X", "auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}, "special_tokens_map_file": "/home/a/special_tokens_map.json"}))
    return folder / "model"


def adapter_on(model, folder):
    weight = load_file(model / "model.safetensors")["model.layers.0.self_attn.q_proj.weight"]
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    folder.mkdir()
    save_file({name + "A.weight": torch.ones(2, weight.shape[1]), name + "B.weight": torch.ones(weight.shape[0], 2)},
              folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"], "layers_to_transform": [0]}))
    return folder


@pytest.mark.parametrize("more", [{"num_nextn_predict_layers": 1}, {"num_mtp_layers": 2}, {}], ids=json.dumps)
def test_a_merged_folder_has_the_tokenizer_and_names_nothing_that_it_lacks(more, tmp_path):
    code = {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    model = base_of(tmp_path, GLM | more | code)
    succeed("export", "--model", model, "--adapter", adapter_on(model, tmp_path / "adapter"), "--format", "merged", "--out", tmp_path / "merged")
    expected = json.loads((model / "config.json").read_text()) | {key: 0 for key in more}
    del expected["auto_map"]
    assert json.loads((tmp_path / "merged/config.json").read_text()) == expected
    assert json.loads((tmp_path / "merged/tokenizer_config.json").read_text()) == {"tokenizer_class": "X"}
    for name in ("tokenizer.json", "tokenizer.model"):
        assert (tmp_path / "merged" / name).read_bytes() == (model / name).read_bytes()
    assert not any(".layers.2." in name for name in load_file(tmp_path / "merged/model.safetensors"))
    again = ("score", "--model", tmp_path / "merged", "--input", tmp_path / "texts.jsonl")
    (tmp_path / "texts.jsonl").write_text('{"ids": [3, 4, 5]}\n')
    succeed(*again)
