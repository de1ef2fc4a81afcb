"""Compares a family that evenkeel does not ship with transformers 4.57 and PEFT 0.17: Qwen2-MoE as in the tutorial
(biases, shared expert).
"""
import json

import pytest

from peer import PROGRAM, assert_scores_equal, random_model, run
from training_peer import assert_twenty_steps_agree

WITH_FAMILIES = PROGRAM.with_name("evenkeel_with_families")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATED = ["gate_proj", "up_proj", "down_proj"]
SIZES = dict(hidden_size=30, intermediate_size=38, vocab_size=89, num_hidden_layers=3)
QWEN2 = dict(family="qwen2_moe", num_attention_heads=5, num_key_value_heads=1, moe_intermediate_size=14, num_experts=6,
             num_experts_per_tok=2, shared_expert_intermediate_size=22, **SIZES)
MODELS = {
    "qwen2, shared expert in every layer": dict(QWEN2, norm_topk_prob=False),
    "qwen2, dense layers between, no biases": dict(QWEN2, norm_topk_prob=True, decoder_sparse_step=2, qkv_bias=False),
}
TRAINED = ["qwen2, shared expert in every layer"]
LENGTHS = (1, 2, 120, 17, 64)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_logprobs_equal_transformers(name, tmp_path):
    assert_scores_equal(random_model(seed=71, **MODELS[name]), LENGTHS, 73, tmp_path, program=WITH_FAMILIES)


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_of_adamw_follow_transformers_and_peft(name, tmp_path):
    assert_twenty_steps_agree(random_model(seed=79, **MODELS[name]), [*ATTENTION, *GATED, "gate"], tmp_path, seed=83)


REFUSED = {
    "qwen2_moe": ({"use_sliding_window": True}, {"rope_scaling": {"type": "yarn"}}, {"head_dim": 5}, {"mlp_only_layers": [1]},
                  {"hidden_act": "gelu"}, {"num_experts_per_tok": 8}, {"decoder_sparse_step": 0}),
}


@pytest.mark.parametrize("family", REFUSED)
def test_unsupported_settings_are_rejected_by_name(family, tmp_path):
    name = next(name for name in MODELS if MODELS[name]["family"] == family)
    random_model(seed=97, **MODELS[name]).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    (tmp_path / "texts.jsonl").write_text('{"ids": [3, 4, 5]}\n')
    for change in REFUSED[family]:
        path.write_text(json.dumps(config | change))
        with pytest.raises(AssertionError, match=next(iter(change))) as refusal:
            run("score", "--model", tmp_path / "model", "--input", tmp_path / "texts.jsonl", program=WITH_FAMILIES)
        assert "exited 1" in str(refusal.value)
