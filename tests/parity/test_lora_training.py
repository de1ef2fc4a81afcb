"""Compares a LoRA loss curve with transformers 4.57 + PEFT 0.17: attention, every expert or the dense block, and the
router are adapted.
"""
import pytest

from peer import random_model
from sparse_families import GATED, TRAINED, attention_of
from training_peer import assert_twenty_steps_agree

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate"]
MODELS = {
    "plain": dict(num_experts=6, num_experts_per_tok=2, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
                  intermediate_size=20, vocab_size=89, num_hidden_layers=2, norm_topk_prob=False),
    "renormalised, clipped, tied": dict(num_experts=11, num_experts_per_tok=4, num_attention_heads=3,
                                        num_key_value_heads=3, hidden_size=30, intermediate_size=26, vocab_size=101,
                                        num_hidden_layers=2, norm_topk_prob=True, clip_qkv=1.3,
                                        tie_word_embeddings=True),
    "one expert per token, many idle": dict(num_experts=24, num_experts_per_tok=1, num_attention_heads=5,
                                            num_key_value_heads=1, hidden_size=40, intermediate_size=14,
                                            vocab_size=73, num_hidden_layers=3, norm_topk_prob=False),
    "dense": dict(family="olmo", num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=52,
                  vocab_size=83, num_hidden_layers=3, tie_word_embeddings=True, clip_qkv=1.1),
    "qwen3": TRAINED["qwen3_moe"] | dict(vocab_size=79),
    "qwen3, dense layers between, biases": TRAINED["qwen3_moe"] | dict(vocab_size=79, decoder_sparse_step=2, attention_bias=True,
                                                                       num_hidden_layers=4, norm_topk_prob=False),
    "mixtral": TRAINED["mixtral"] | dict(vocab_size=79),
    **{family: TRAINED[family] | dict(vocab_size=79) for family in ("flex_olmo", "qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")},
}
MIXTRALS = [*TARGETS[:4], "w1", "w2", "w3", "gate"]


@pytest.mark.parametrize("name", MODELS)
def test_twenty_steps_of_adamw_follow_transformers_and_peft(name, tmp_path):
    base = random_model(seed=51, **MODELS[name])
    if MODELS[name].get("family") == "mixtral":
        assert_twenty_steps_agree(base, MIXTRALS, tmp_path, seed=53, ours=TARGETS)
    elif hasattr(base.config, "n_routed_experts"):  # PEFT 0.17 takes no routers that are no linear layers
        assert_twenty_steps_agree(base, [*attention_of(name), *GATED], tmp_path, seed=53)
    else:
        assert_twenty_steps_agree(base, TARGETS if hasattr(base.config, "num_experts") else TARGETS[:-1], tmp_path, seed=53)


@pytest.mark.parametrize("engine, name", [("kernels", "plain"), ("aten", "dense")])
@pytest.mark.parametrize("optimizer", [{}, {"lr": 0.3, "momentum": 0.8, "weight_decay": 0.01}, {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}],
                         ids=["adamw", "momentum", "plain"])
def test_twenty_steps_of_each_optimiser_with_a_limited_norm_follow_torch(optimizer, engine, name, tmp_path):
    base = random_model(seed=51, **MODELS[name])
    changes = {"optimizer": optimizer} if optimizer else {}
    assert_twenty_steps_agree(base, TARGETS if name == "plain" else TARGETS[:-1], tmp_path, seed=53, learns=0.95, max_grad_norm=0.3, engine=engine, **changes)


@pytest.mark.parametrize("name, top_k, weight, temperature", [("plain", 1, 1.0, 1.0), ("renormalised, clipped, tied", 2, 0.7, 2.5)])
def test_twenty_steps_with_distillation_towards_the_own_answer_follow_torch(name, top_k, weight, temperature, tmp_path):
    base = random_model(seed=51, **MODELS[name])
    assert_twenty_steps_agree(base, TARGETS, tmp_path, seed=53, learns=0.95, distillation={"top_k": top_k, "weight": weight, "temperature": temperature})
