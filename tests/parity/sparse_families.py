"""A table of the sparse families besides OLMoE, with the settings of their tests."""
import functools
import itertools

from peer import random_model

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATED = ["gate_proj", "up_proj", "down_proj"]
# E, k, heads, kv heads, head width, F, V, layers, tied, rope_theta
SHAPES = [
    (5, 2, 4, 4, 8, 24, 97, 2, False, 1e4),
    (8, 8, 6, 2, 4, 20, 131, 2, False, 1e6),
    (3, 1, 2, 1, 16, 44, 89, 3, True, 5e4),
    (16, 4, 4, 2, 12, 36, 203, 2, True, 1e4),
    (64, 8, 4, 4, 8, 16, 151, 2, False, 1e6),
    (7, 3, 3, 3, 10, 28, 71, 1, True, 1e4),
    (12, 5, 8, 4, 6, 52, 257, 2, False, 1e3),
    (6, 6, 5, 1, 8, 18, 113, 2, False, 2e4),
    (9, 2, 1, 1, 32, 40, 61, 4, True, 1e4),
    (32, 1, 6, 3, 8, 12, 167, 2, False, 1e4),
    (4, 3, 2, 2, 20, 56, 79, 2, False, 1e5),
    (10, 7, 9, 3, 4, 30, 307, 2, True, 1e4),
]
# For each shape. Qwen3: head width (None: that of the shape), norm_topk_prob, step, dense layers by name, biases.
QWEN3 = itertools.cycle([(None, True, 1, [], False), (10, False, 1, [], False), (6, True, 2, [], True), (None, False, 1, [0], False),
                         (14, True, 1, [], True)])
# Granite: embedding_multiplier, logits_scaling, residual_multiplier, attention_multiplier, biases.
GRANITE = itertools.cycle([(12.0, 6.0, 0.22, 0.0078125, False), (1.0, 1.0, 1.0, 0.3, True), (3, 0.5, 0.7, 0.25, False),
                           (0.5, 2.0, 1.4, 0.1, False)])
MIXTRAL = itertools.cycle([{}, {"head_dim": 10}, {"sliding_window": 256}, {"sliding_window": 11}])


def qwen3_moe(shape, more):
    head, renormalise, step, dense, bias = more
    experts, top_k, heads, kv_heads, width, inner, *_ = shape
    own = {"head_dim": head} if head else {}
    return dict(num_experts=experts, num_experts_per_tok=top_k, moe_intermediate_size=inner, intermediate_size=inner + 6,
                norm_topk_prob=renormalise, decoder_sparse_step=min(step, shape[7]), attention_bias=bias,
                mlp_only_layers=[layer for layer in dense if shape[7] > 1], **own)


def granitemoe(shape, more):
    embedding, logits, residual, attention, bias = more
    return dict(num_local_experts=shape[0], num_experts_per_tok=shape[1], intermediate_size=shape[5], embedding_multiplier=embedding,
                logits_scaling=logits, residual_multiplier=residual, attention_multiplier=attention, attention_bias=bias)


def mixtral(shape, more):
    return dict(num_local_experts=shape[0], num_experts_per_tok=shape[1], intermediate_size=shape[5], **more)


def settings_of(family, own, shape):
    *_, heads, kv_heads, width, _, vocabulary, layers, tied, theta = shape
    return dict(family=family, num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=heads * width, vocab_size=vocabulary,
                num_hidden_layers=layers, tie_word_embeddings=tied, rope_theta=theta) | own


FAMILIES = {
    "qwen3_moe": [settings_of("qwen3_moe", qwen3_moe(shape, next(QWEN3)), shape) for shape in SHAPES],
    "mixtral": [settings_of("mixtral", mixtral(shape, next(MIXTRAL)), shape) for shape in SHAPES],
    "granitemoe": [settings_of("granitemoe", granitemoe(shape, next(GRANITE)), shape) for shape in SHAPES],
}
ALL = [(family, index) for family, models in FAMILIES.items() for index in range(len(models))]
# A model for training and federation.
SIZES = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, num_hidden_layers=2)
TRAINED = {
    "qwen3_moe": SIZES | dict(family="qwen3_moe", num_experts=7, num_experts_per_tok=4, moe_intermediate_size=20,
                              intermediate_size=36, norm_topk_prob=True, head_dim=12),
    "mixtral": SIZES | dict(family="mixtral", num_local_experts=7, num_experts_per_tok=4, intermediate_size=20),
    "granitemoe": SIZES | dict(family="granitemoe", num_local_experts=7, num_experts_per_tok=4, intermediate_size=20,
                               embedding_multiplier=3.0, logits_scaling=1.5, residual_multiplier=0.6, attention_multiplier=0.25),
}


@functools.cache
def model_at(family, index):
    return random_model(seed=200 + index, **FAMILIES[family][index])
