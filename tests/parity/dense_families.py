"""A table of the dense families besides OLMo, with the settings of their tests."""
import functools
import itertools

from peer import V5, random_model

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATED = ["gate_proj", "up_proj", "down_proj"]
# heads, kv heads, head width, F, V, layers, tied, rope_theta
SHAPES = [
    (4, 4, 8, 24, 97, 2, False, 1e4),
    (6, 2, 4, 20, 131, 2, False, 1e6),
    (2, 1, 16, 44, 89, 3, True, 5e4),
    (4, 2, 12, 36, 203, 2, True, 1e4),
    (4, 4, 8, 16, 151, 2, False, 1e6),
    (3, 3, 10, 28, 71, 1, True, 1e4),
    (8, 4, 6, 52, 257, 2, False, 1e3),
    (5, 1, 8, 18, 113, 2, False, 2e4),
    (1, 1, 32, 40, 61, 4, True, 1e4),
    (6, 3, 8, 12, 167, 2, False, 1e4),
    (2, 2, 20, 56, 79, 2, False, 1e5),
    (9, 3, 4, 30, 307, 2, True, 1e4),
]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 40, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SCALED = {"rope_parameters": LLAMA3 | {"rope_theta": 5e5}} if V5 else {"rope_scaling": LLAMA3}
# For each shape in turn: the keys of config.json that the family has besides the sizes.
OPTIONS = {
    "llama": [{}, {"attention_bias": True}, {"mlp_bias": True, "hidden_act": "gelu"}, {"head_dim": 10, "attention_bias": True, "mlp_bias": True},
              {"hidden_act": "gelu_pytorch_tanh"}, {"rms_norm_eps": 0.02}, SCALED],
    "mistral": [{"sliding_window": None}, {"head_dim": 10, "sliding_window": 256}, {"sliding_window": 7, "hidden_act": "gelu"},
                {"sliding_window": 100}, {"sliding_window": 1}],
    "qwen2": [{}, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}, {"hidden_act": "gelu_pytorch_tanh"}, {"rms_norm_eps": 0.02}, {"use_sliding_window": False, "sliding_window": 16}],
    "qwen3": [{"head_dim": 10}, {"head_dim": 6, "attention_bias": True}, {"head_dim": 14, "hidden_act": "gelu"}, {"head_dim": 8, "rms_norm_eps": 0.02, "use_sliding_window": True, "sliding_window": 30, "max_window_layers": 0},
              {}],
    "granite": [{"embedding_multiplier": 12.0, "logits_scaling": 6.0, "residual_multiplier": 0.22, "attention_multiplier": 0.0078125},
                {"attention_multiplier": 0.3, "attention_bias": True, "mlp_bias": True},
                {"embedding_multiplier": 3, "logits_scaling": 0.5, "residual_multiplier": 0.7, "attention_multiplier": 0.25},
                {"embedding_multiplier": 0.5, "logits_scaling": 2.0, "residual_multiplier": 1.4, "attention_multiplier": 0.1, "hidden_act": "gelu"}],
    "olmo2": [{}, {"attention_bias": True}, {"hidden_act": "gelu"}, {"rms_norm_eps": 0.02}],
    "gemma3_text": [{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}, {"head_dim": 10, "query_pre_attn_scalar": 24, "sliding_window": 7, "sliding_window_pattern": 2},
                    {"head_dim": 6, "attention_bias": True, "sliding_window": 300, "final_logit_softcapping": 3.0, "sliding_window_pattern": 3},
                    {"head_dim": 16, "hidden_activation": "gelu", "rope_local_base_freq": 40.0, "sliding_window": 1, "sliding_window_pattern": 2},
                    {"head_dim": 4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 2}],
    "gemma2": [{"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 16}, {"head_dim": 10, "query_pre_attn_scalar": 3, "sliding_window": 7, "attn_logit_softcapping": 2.0},
               {"head_dim": 6, "attention_bias": True, "sliding_window": 300, "final_logit_softcapping": 3.0}, {"head_dim": 16, "hidden_activation": "gelu", "attn_logit_softcapping": None, "sliding_window": 1},
               {"head_dim": 4, "query_pre_attn_scalar": 2, "final_logit_softcapping": None, "attn_logit_softcapping": 5.0}],
    "phi3": [{}, {"partial_rotary_factor": 0.67}, {"sliding_window": 7, "head_dim": 10}, {"longrope": 1.0, "rms_norm_eps": 0.02},
             {"longrope": 0.75, "partial_rotary_factor": 0.75, "hidden_act": "gelu", "sliding_window": 100}],
}
FAMILIES = tuple(OPTIONS)


def with_factors(own, width):
    """Replaces "longrope", the share of a head that is rotated, by the settings of LongRoPE."""
    if "longrope" not in own:
        return own
    count = int(width * own["longrope"]) // 2
    factors = {"short_factor": [1 + 0.2 * i for i in range(count)], "long_factor": [1 + 3.0 * i for i in range(count)]}
    return {key: value for key, value in own.items() if key != "longrope"} | {
        "rope_scaling": {"type": "longrope"} | factors, "original_max_position_embeddings": 300, "max_position_embeddings": 900}


def settings_of(family, own, shape):
    heads, kv_heads, width, inner, vocabulary, layers, tied, theta = shape
    own = with_factors(own, width)
    return dict(family=family, num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=heads * width, intermediate_size=inner,
                vocab_size=vocabulary, num_hidden_layers=layers, tie_word_embeddings=tied, rope_theta=theta) | own


MODELS = {family: [settings_of(family, own, shape) for own, shape in zip(itertools.cycle(options), SHAPES)]
          for family, options in OPTIONS.items()}
ALL = [(family, index) for family, models in MODELS.items() for index in range(len(models))]
# A model of each family for training and federation.
SIZES = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=52, num_hidden_layers=2)
TRAINED = {family: SIZES | dict(family=family) for family in FAMILIES}
TRAINED["llama"] |= dict(attention_bias=True, mlp_bias=True)
TRAINED["mistral"] |= dict(sliding_window=None)
TRAINED["qwen3"] |= dict(head_dim=12)
TRAINED["phi3"] |= dict(partial_rotary_factor=0.5)
TARGETS = {family: [*ATTENTION, *GATED] for family in FAMILIES} | {"phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}
TRAINED["gemma2"] |= dict(head_dim=12, query_pre_attn_scalar=4, sliding_window=9, final_logit_softcapping=60.0, attn_logit_softcapping=6.0)
TRAINED["gemma3_text"] |= dict(head_dim=12, query_pre_attn_scalar=10, sliding_window=9, sliding_window_pattern=2, final_logit_softcapping=20.0)
TRAINED["granite"] |= dict(embedding_multiplier=0.5, logits_scaling=0.5, residual_multiplier=0.8, attention_multiplier=0.25)


@functools.cache
def model_at(family, index):
    return random_model(seed=400 + index, **MODELS[family][index])
