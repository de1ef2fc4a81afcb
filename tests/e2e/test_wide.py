"""Tests every method on matrices above 512 x 512, as published models have them: factorisations of larger ones take other paths."""

import json
import math

import pytest
from safetensors.numpy import load_file

from tiny import CONFIG, METHODS, ROOT, lines, random_model, settings, succeed

WIDE = {"vocab_size": 1024, "hidden_size": 528, "intermediate_size": 520, "num_hidden_layers": 1, "num_experts": 8,
        "num_attention_heads": 4, "num_key_value_heads": 4}


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory):
    config = json.loads((ROOT / "configs/tiny/model.json").read_text()) | WIDE
    return random_model(tmp_path_factory.mktemp("wide"), config)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_a_wide_model(wide_model, tmp_path, method):
    succeed("train", CONFIG, "--out", tmp_path / "run", *settings(
        model__path=wide_model, method__name=method, train__rounds=2, data__limit=24, evaluate__limit=2, evaluate__budgets="[1.0]"))
    rounds = lines(tmp_path / "run/rounds.jsonl")
    assert len(rounds) == 2 and all(math.isfinite(one["loss"]) for one in rounds)
    factors = load_file(tmp_path / "run/adapter/adapter_model.safetensors")
    assert any(factor.any() for name, factor in factors.items() if "lora_B" in name)
