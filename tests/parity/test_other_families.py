"""Compares a family that evenkeel does not ship with transformers 4.57 and PEFT 0.17: dots1 as in the tutorial (sigmoid
gates, shared experts).
"""
import json

import pytest

from peer import PROGRAM, assert_scores_equal, random_model, run
from training_peer import assert_twenty_steps_agree

WITH_FAMILIES = PROGRAM.with_name("evenkeel_with_families")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATED = ["gate_proj", "up_proj", "down_proj"]
DOTS = dict(family="dots1", num_attention_heads=5, num_key_value_heads=1, moe_intermediate_size=14, n_routed_experts=6, num_experts_per_tok=2,
            n_shared_experts=2, hidden_size=30, intermediate_size=38, vocab_size=89, num_hidden_layers=3)
MODELS = {
    "sparse in every layer": dict(DOTS, norm_topk_prob=False),
    "dense first, groups, biases": dict(DOTS, norm_topk_prob=True, first_k_dense_replace=1, n_group=3, topk_group=2, attention_bias=True,
                                        head_dim=8, routed_scaling_factor=1.7),
}
LENGTHS = (1, 2, 120, 17, 64)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_logprobs_equal_transformers(name, tmp_path):
    assert_scores_equal(random_model(seed=71, **MODELS[name]), LENGTHS, 73, tmp_path, program=WITH_FAMILIES)


@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps_of_adamw_follow_transformers_and_peft(name, tmp_path):
    assert_twenty_steps_agree(random_model(seed=79, **MODELS[name]), [*ATTENTION, *GATED], tmp_path, seed=83)


@pytest.mark.parametrize("change", [{"sliding_window": 8}, {"rope_scaling": {"type": "yarn"}}, {"head_dim": 5}, {"n_shared_experts": None},
                                    {"hidden_act": "gelu"}, {"num_experts_per_tok": 8}, {"n_group": 4}], ids=json.dumps)
def test_unsupported_settings_are_rejected_by_name(change, tmp_path):
    random_model(seed=97, **DOTS).save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    (tmp_path / "texts.jsonl").write_text('{"ids": [3, 4, 5]}\n')
    path.write_text(json.dumps(config | change))
    with pytest.raises(AssertionError, match=next(iter(change))) as refusal:
        run("score", "--model", tmp_path / "model", "--input", tmp_path / "texts.jsonl", program=WITH_FAMILIES)
    assert "exited 1" in str(refusal.value)
