"""A table of the sparse families besides OLMoE, with the settings of their tests."""
import functools
import itertools

from peer import V5, random_model

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
FLEX_OLMO = itertools.cycle([{}, {"norm_topk_prob": True}, {"attention_bias": True, "head_dim": 10}, {"rms_norm_eps": 0.02}])
# Qwen2: norm_topk_prob, step, dense layers by name, and other keys.
QWEN2 = itertools.cycle([(False, 1, [], {}), (True, 2, [], {"qkv_bias": False}), (False, 1, [0], {}), (True, 1, [1, 7], {"head_dim": 10} if V5 else {}),
                         (False, 1, [], {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2} if V5 else {})])
# DeepSeek: rank of queries, of keys and values, widths of the plain and the rotary part and of values, dense layers, other keys.
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 40, "mscale": 0.9, "mscale_all_dim": 0.7}
SCALED = {"rope_parameters": YARN | {"rope_theta": 300.0}} if V5 else {"rope_scaling": YARN, "rope_theta": 300.0}
SHARES = itertools.cycle([(None, 10, 8, 4, 6, 1, {}), (14, 12, 6, 8, 20, 0, {"attention_bias": True}), (None, 6, 4, 2, 6, 1, {"n_shared_experts": 3}),
                          (9, 20, 10, 6, 8, 2, {})])
V2 = itertools.cycle([{}, {"routed_scaling_factor": 1.6}, {"grouped": True, "routed_scaling_factor": 2.0}] + [SCALED] * V5)
V3 = itertools.cycle([{"grouped": True}, {"norm_topk_prob": False}, {"rope_interleave": False, "routed_scaling_factor": 1.3}, SCALED])
GLM = itertools.cycle([{"use_qk_norm": True}, {"attention_bias": True, "n_shared_experts": 2}, {"grouped": True, "routed_scaling_factor": 1.6},
                       {"norm_topk_prob": False, "head_dim": 20, "first_k_dense_replace": 0}, {"partial_rotary_factor": 1.0, "use_qk_norm": True}])
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


def flex_olmo(shape, more):
    return dict(num_experts=shape[0], num_experts_per_tok=shape[1], intermediate_size=shape[5], **more)


def qwen2_moe(shape, more):
    renormalise, step, dense, own = more
    return dict(num_experts=shape[0], num_experts_per_tok=shape[1], moe_intermediate_size=shape[5], intermediate_size=shape[5] + 6,
                shared_expert_intermediate_size=shape[5] + 10, norm_topk_prob=renormalise, decoder_sparse_step=min(step, shape[7]),
                mlp_only_layers=[layer for layer in dense if shape[7] > 1], **own)


def groups_of(experts, top_k):
    """Returns groups of at least two experts, of which a token uses all but one where it needs no more."""
    groups = next((n for n in (4, 3, 2) if experts % n == 0 and experts // n > 1), 1)
    kept = next((n for n in range(max(1, groups - 1), groups + 1) if experts // groups * n >= top_k), groups)
    return dict(n_group=groups, topk_group=kept)


def after_deepseek(shape, first, more):
    """Returns the keys that DeepSeek and the families after it share."""
    more = {"grouped": False} | more
    groups = groups_of(shape[0], shape[1]) if more.pop("grouped") else dict(n_group=1, topk_group=1)
    return dict(n_routed_experts=shape[0], num_experts_per_tok=shape[1], moe_intermediate_size=shape[5], intermediate_size=shape[5] + 6,
                first_k_dense_replace=min(first, shape[7] - 1), n_shared_experts=1) | groups | more


def deepseek(shape, share, more):
    queries, values, plain, rotary, width, first, own = share
    return after_deepseek(shape, first, more) | dict(q_lora_rank=queries, kv_lora_rank=values, qk_nope_head_dim=plain, qk_rope_head_dim=rotary,
                                                     v_head_dim=width, num_key_value_heads=shape[2]) | own


def deepseek_v2(shape, more):
    own = deepseek(shape, *more)
    return own | {"topk_method": "group_limited_greedy" if own["n_group"] > 1 else "greedy"}


def deepseek_v3(shape, more):
    return deepseek(shape, *more)


def glm4_moe(shape, more):
    return dict(head_dim=shape[4] * 2) | after_deepseek(shape, 1, more)


def settings_of(family, own, shape):
    *_, heads, kv_heads, width, _, vocabulary, layers, tied, theta = shape
    return dict(family=family, num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=heads * width, vocab_size=vocabulary,
                num_hidden_layers=layers, tie_word_embeddings=tied, rope_theta=theta) | own


FAMILIES = {
    "flex_olmo": [settings_of("flex_olmo", flex_olmo(shape, next(FLEX_OLMO)), shape) for shape in SHAPES],
    "qwen2_moe": [settings_of("qwen2_moe", qwen2_moe(shape, next(QWEN2)), shape) for shape in SHAPES],
    "qwen3_moe": [settings_of("qwen3_moe", qwen3_moe(shape, next(QWEN3)), shape) for shape in SHAPES],
    "mixtral": [settings_of("mixtral", mixtral(shape, next(MIXTRAL)), shape) for shape in SHAPES],
    "granitemoe": [settings_of("granitemoe", granitemoe(shape, next(GRANITE)), shape) for shape in SHAPES],
    "deepseek_v2": [settings_of("deepseek_v2", deepseek_v2(shape, (next(SHARES), next(V2))), shape) for shape in SHAPES],
    "deepseek_v3": [settings_of("deepseek_v3", deepseek_v3(shape, (next(SHARES), next(V3))), shape) for shape in SHAPES],
    "glm4_moe": [settings_of("glm4_moe", glm4_moe(shape, next(GLM)), shape) for shape in SHAPES],
}
ALL = [(family, index) for family, models in FAMILIES.items() for index in range(len(models))]
# A model for training and federation.
SIZES = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, num_hidden_layers=2)
ROUTED = dict(n_routed_experts=7, num_experts_per_tok=4, moe_intermediate_size=20, intermediate_size=36, n_shared_experts=1, n_group=1,
              topk_group=1)
LATENT = ROUTED | dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
TRAINED = {
    "qwen3_moe": SIZES | dict(family="qwen3_moe", num_experts=7, num_experts_per_tok=4, moe_intermediate_size=20,
                              intermediate_size=36, norm_topk_prob=True, head_dim=12),
    "mixtral": SIZES | dict(family="mixtral", num_local_experts=7, num_experts_per_tok=4, intermediate_size=20),
    "granitemoe": SIZES | dict(family="granitemoe", num_local_experts=7, num_experts_per_tok=4, intermediate_size=20,
                               embedding_multiplier=3.0, logits_scaling=1.5, residual_multiplier=0.6, attention_multiplier=0.25),
    "flex_olmo": SIZES | dict(family="flex_olmo", num_experts=7, num_experts_per_tok=4, intermediate_size=20),
    "qwen2_moe": SIZES | dict(family="qwen2_moe", num_experts=7, num_experts_per_tok=4, moe_intermediate_size=20, intermediate_size=36,
                              shared_expert_intermediate_size=28),
    "deepseek_v2": SIZES | LATENT | dict(family="deepseek_v2", q_lora_rank=None, routed_scaling_factor=1.5),
    "deepseek_v3": SIZES | LATENT | dict(family="deepseek_v3", q_lora_rank=14, num_hidden_layers=3, first_k_dense_replace=1),
    "glm4_moe": SIZES | ROUTED | dict(family="glm4_moe", head_dim=12, use_qk_norm=True, num_hidden_layers=3),
}


GROUPED = ("deepseek_v2", "deepseek_v3", "glm4_moe")  # their routers are parameters in every version of transformers


def attention_of(family):
    """Returns the names of the attention's linears."""
    if not family.startswith("deepseek"):
        return ATTENTION
    queries = ["q_a_proj", "q_b_proj"] if TRAINED[family]["q_lora_rank"] else ["q_proj"]
    return [*queries, "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]


def run_settings(family):
    """Returns settings of a run whose adapters the installed PEFT loads."""
    targets = [f"lora.targets={[*attention_of(family), *GATED]}"] if family.startswith("deepseek") else []
    gates = ["method.gate_norm=olmoe_native"] if family == "deepseek_v2" else []  # no config.json of V2 says that they are renormalised
    return targets + gates + (["lora.router_lora=false"] if family in GROUPED and not V5 else [])


@functools.cache
def model_at(family, index):
    return random_model(seed=200 + index, **FAMILIES[family][index])
