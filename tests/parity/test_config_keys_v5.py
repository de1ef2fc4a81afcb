"""Checks that every key of transformers' config classes for the supported families is either read, rejected, or without
effect here with a reason. The keys come from the classes themselves, so a new one fails this file until it is added.
"""
import functools
import inspect
import json
import re
from dataclasses import fields

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, cache_utils, masking_utils
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_rope_utils import RopeParameters

from forked import forked
from peer import CONFIGS, EXPERTS, assert_logits_close, experts_of, random_model, texts_with_logits

GROUPED = ("deepseek_v2", "deepseek_v3", "glm4_moe")  # DeepSeek's, and those after it
SPARSE = ("olmoe", "flex_olmo", "qwen2_moe", "qwen3_moe", "mixtral", "granitemoe", *GROUPED)
DENSE = ("llama", "mistral", "qwen2", "qwen3", "granite", "olmo2")  # without olmo, which has other norms
FAMILIES = ("olmo", *SPARSE, *DENSE)
SMALL = dict(num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=83, num_hidden_layers=2)
ROUTED = SMALL | dict(n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=14, n_shared_experts=1, n_group=4, topk_group=2,
                      first_k_dense_replace=1)
LATENT = ROUTED | dict(num_key_value_heads=None, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=10)
MODELS = {
    "olmo": SMALL,
    "flex_olmo": SMALL | dict(num_experts=7, num_experts_per_tok=3),
    "qwen2_moe": SMALL | dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=14, shared_expert_intermediate_size=18),
    "deepseek_v2": LATENT | dict(q_lora_rank=None, topk_method="group_limited_greedy"),
    "deepseek_v3": LATENT | dict(q_lora_rank=9, norm_topk_prob=False), "glm4_moe": ROUTED | dict(head_dim=16, norm_topk_prob=False),
    "olmoe": SMALL | dict(num_experts=7, num_experts_per_tok=3),
    "qwen3_moe": SMALL | dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=14, norm_topk_prob=True),
    "mixtral": SMALL | dict(num_local_experts=7, num_experts_per_tok=3, head_dim=8),  # without a width, transformers scales no positions
    "granitemoe": SMALL | dict(num_local_experts=7, num_experts_per_tok=3, embedding_multiplier=3.0, logits_scaling=1.5,
                               residual_multiplier=0.6, attention_multiplier=0.25),
    "llama": SMALL, "mistral": SMALL | dict(sliding_window=None, head_dim=8), "qwen2": SMALL, "qwen3": SMALL | dict(head_dim=128),
    "granite": SMALL | dict(embedding_multiplier=3.0, logits_scaling=1.5, residual_multiplier=0.6, attention_multiplier=0.25),
    "olmo2": SMALL,
}
PLAIN = {"rope_type": "default"}
LINEAR = {"rope_type": "linear", "factor": 2.5}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 30, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 30}
NORMED = (*SPARSE, *DENSE)
GRANITE = ("granitemoe", "granite")
QWEN = ("qwen2_moe", "qwen3_moe", "qwen2", "qwen3")
LATENTS = ("deepseek_v2", "deepseek_v3")
NO_LATENTS = tuple(family for family in FAMILIES if family not in LATENTS)

# key -> (families, values): with another value the same weights have other logits, equal to transformers'.
READ = {
    "rope_parameters": (FAMILIES, [PLAIN | {"rope_theta": 300.0}, {"type": "default", "rope_theta": 40}, LINEAR, YARN]),
    "rope_theta": (FAMILIES, [300.0, 17]),
    "rope_scaling": (FAMILIES, [PLAIN | {"rope_theta": 300.0}, {"type": "linear", "factor": 3}, DYNAMIC | {"rope_theta": 300.0}, LLAMA3]),
    "rms_norm_eps": (NORMED, [0.5]),
    "num_experts_per_tok": (SPARSE, [1, 5]),
    "norm_topk_prob": (("olmoe", "qwen2_moe", "deepseek_v3", "glm4_moe"), [True]),
    "routed_scaling_factor": (GROUPED, [0.7, 3.0]),
    "n_group": (GROUPED, [3, 6]), "topk_group": (GROUPED, [3, 4]), "topk_method": (("deepseek_v2",), ["greedy"]),
    "rope_interleave": (("deepseek_v3",), [False]), "partial_rotary_factor": (("glm4_moe",), [1.0, 0.25]),
    "clip_qkv": (("olmo", "olmoe"), [0.3]),
    "embedding_multiplier": (GRANITE, [1, 7.5]),
    "logits_scaling": (GRANITE, [8.0]),
    "residual_multiplier": (GRANITE, [1.1]),
    "attention_multiplier": (GRANITE, [1.5]),
    "hidden_act": (DENSE, ["gelu", "gelu_pytorch_tanh"]),
    "sliding_window": (("mistral", "mixtral"), [7, 1]),
}
# key -> (families, values): other weights, so a separate model.
SIZES = {
    "vocab_size": (FAMILIES, [61]), "hidden_size": (FAMILIES, [48]), "num_hidden_layers": (FAMILIES, [3]),
    "num_attention_heads": (FAMILIES, [8]), "num_key_value_heads": (NO_LATENTS, [1, 4]), "head_dim": (("olmo", "flex_olmo", "qwen2_moe", "glm4_moe", "qwen3_moe", "mixtral", "granitemoe", *DENSE), [12]),
    "intermediate_size": (FAMILIES, [28]), "moe_intermediate_size": (("qwen2_moe", "qwen3_moe", *GROUPED), [22]),
    "shared_expert_intermediate_size": (("qwen2_moe",), [26]), "qkv_bias": (("qwen2_moe",), [False]), "use_qk_norm": (("glm4_moe",), [True]),
    "n_routed_experts": (GROUPED, [24]), "n_shared_experts": (GROUPED, [2]), "first_k_dense_replace": (GROUPED, [0]),
    "q_lora_rank": (LATENTS, [None, 20]), "kv_lora_rank": (LATENTS, [22]), "qk_nope_head_dim": (LATENTS, [12]), "qk_rope_head_dim": (LATENTS, [10]),
    "v_head_dim": (LATENTS, [4, 26]),
    "num_experts": (("olmoe", "flex_olmo", "qwen2_moe"), [9]), "num_local_experts": (("qwen3_moe", "mixtral", "granitemoe"), [9]),
    "tie_word_embeddings": (FAMILIES, [True]), "attention_bias": (("olmo", "olmoe", "flex_olmo", "qwen3_moe", *GROUPED, *GRANITE, "llama", "qwen3", "olmo2"), [True]), "mlp_bias": (("llama", "granite"), [True]),
    "decoder_sparse_step": (("qwen2_moe", "qwen3_moe"), [2]), "mlp_only_layers": (("qwen2_moe", "qwen3_moe"), [[0]]),
}
# key -> (families, values): exit code 1, and one line that names file and key.
REFUSED = {
    "rope_parameters": (FAMILIES, [{"rope_type": "longrope", "factor": 2.0}, PLAIN | {"rope_thetta": 5.0}, {"rope_theta": None},
                                   {"rope_theta": "1e4"}, {"full_attention": PLAIN}, {"rope_type": None}, 5]),
    "rope_scaling": (FAMILIES, [{"type": "su", "factor": 2.0}, {"rope_type": "llama3"}, {"factor": 4.0}, PLAIN | {"low_freq_factor": 1}]),
    "rope_theta": (FAMILIES, [None, 0, "10000"]),
    "partial_rotary_factor": (tuple(family for family in FAMILIES if family != "glm4_moe"), [0.5]),
    "hidden_act": (FAMILIES, ["relu", "gelu_new"]),
    "attention_dropout": (FAMILIES, [0.1]),
    "is_encoder_decoder": (FAMILIES, [True]),
    "is_causal": (FAMILIES, [False]),
    "per_layer_config": (FAMILIES, [{"0": {"hidden_act": "gelu"}}]),
    "layer_types": (FAMILIES, [["sliding_attention", "full_attention"]]),
    "attention_chunk_size": (FAMILIES, [16]),
    "kv_sharing_modes": (FAMILIES, [["none", "none"]]),
    "sliding_window": (("olmo", "olmoe", "flex_olmo", *GROUPED, *GRANITE, "llama", "olmo2"), [64]),
    "use_sliding_window": (QWEN, ["yes", 1]),
    "router_jitter_noise": (("mixtral",), [0.1]),
    "quantization_config": (FAMILIES, [{"quant_method": "awq"}]),
    "num_local_experts": (("olmoe", "flex_olmo", "deepseek_v3", "glm4_moe"), [5]), "num_experts": (("qwen3_moe", "mixtral", "deepseek_v2"), [5]),
    "num_key_value_heads": (LATENTS, [2]), "mlp_bias": (("deepseek_v2",), [True]), "moe_layer_freq": (LATENTS, [2]),
    "scoring_func": (("deepseek_v3",), ["softmax"]), "topk_method": (LATENTS, ["greediest"]), "n_group": (GROUPED, [5, 0]), "topk_group": (GROUPED, [5, 0]),
    "n_shared_experts": (GROUPED, [None, 0]), "first_k_dense_replace": (GROUPED, [-1, 0.5]), "routed_scaling_factor": (GROUPED, [None, "2"]),
    "q_lora_rank": (LATENTS, [0]), "qk_rope_head_dim": (LATENTS, [7]),
    "head_dim": (("olmoe", "deepseek_v3"), [12]),  # in transformers the norm over all heads is as wide as the hidden states
    "rms_norm_eps": (NORMED, [None, "1e-5"]), "vocab_size": (FAMILIES, [None, 83.5]), "logits_scaling": (GRANITE, [0]),
    "attention_multiplier": (GRANITE, [None]), "norm_topk_prob": (("olmoe", "flex_olmo", "qwen2_moe", "qwen3_moe", "deepseek_v3", "glm4_moe"), [None, 1]),
}
REFUSED_TOO = {"norm_topk_prob": (("deepseek_v2",), [True]), "partial_rotary_factor": (("glm4_moe",), [0, 0.2, 1.5])}
STORED = "tensors are computed with as they are stored, or as --dtype says"
LABELS = "there is no classifier"
GENERATION = "a setting of transformers' generation, which has flags of its own here"
WORKSHOP = "how transformers computes, not what"
# key -> (value, reason): the logits change neither here nor in transformers.
NO_EFFECT = {
    "dtype": ("float64", STORED), "torch_dtype": ("bfloat16", STORED),
    "architectures": (["Another"], "the family is model_type"), "transformers_version": ("4.1.0", "a note"),
    "auto_map": ({"AutoModelForCausalLM": "code.Model"}, "without trust_remote_code transformers computes its own class"),
    "name_or_path": ("elsewhere", "a note"), "_commit_hash": ("abc", "a note"),
    "id2label": ({"0": "a"}, LABELS), "label2id": ({"a": 0}, LABELS), "num_labels": (1, LABELS),
    "problem_type": ("regression", LABELS), "chunk_size_feed_forward": (8, "no block of these families looks at it"),
    "output_hidden_states": (True, "what transformers returns besides logits"), "return_dict": (True, "a form of the answer"),
    "output_attentions": (False, "what transformers returns besides logits"), "use_cache": (False, WORKSHOP),
    "attn_implementation": ("eager", WORKSHOP), "experts_implementation": ("eager", WORKSHOP),
    "output_router_logits": (True, "a loss that transformers adds in training; here methods say what is added"),
    "router_aux_loss_coef": (0.5, "the weight of that loss"),
    "initializer_range": (0.7, "of random weights, which `init` and `pretrain` draw"),
    "pad_token_id": (5, "texts are packed end to end, never padded"), "bos_token_id": (3, "the tokenizer says what texts begin with"),
    "eos_token_id": (4, "of generation: tests/parity/test_generation.py"),
    "max_position_embeddings": (300, "positions are computed; longer texts are refused here"),
    "original_max_position_embeddings": (16, "a setting of scaled positions, see ROPES; these are plain"),
}
NO_WINDOW = {"sliding_window": (8, "use_sliding_window is false")}
UNREAD = "layers of prediction behind the last are not run"
OWN_WIDTH = "the width of the rotated part is qk_rope_head_dim"
NO_EFFECT_OF = {"flex_olmo": {"norm_topk_prob": (True, "the norm behind a mixture takes out the scale of its output")},
                "qwen2_moe": NO_WINDOW | {"max_window_layers": (1, "there is no window")},
                "deepseek_v2": {"head_dim": (16, OWN_WIDTH), "pretraining_tp": (2, "how transformers computed once, not what")},
                "deepseek_v3": {"pretraining_tp": (2, "how transformers computed once, not what"),
                                "num_nextn_predict_layers": (2, UNREAD), "num_mtp_layers": (None, "")},
                "glm4_moe": {"num_nextn_predict_layers": (2, UNREAD), "num_mtp_layers": (None, "")},
                "qwen3_moe": NO_WINDOW, "qwen2": NO_WINDOW | {"max_window_layers": (1, "there is no window")},
                "qwen3": NO_WINDOW | {"max_window_layers": (1, "there is no window")},
                "llama": {"pretraining_tp": (2, "how transformers computed once, not what")}}


def placed(family):
    tables = {key for table in (READ, SIZES, REFUSED, REFUSED_TOO) for key, (families, _) in table.items() if family in families}
    return tables | NO_EFFECT.keys() | NO_EFFECT_OF.get(family, {}).keys()


def modelling(family):
    return inspect.getmodule(AutoModelForCausalLM._model_mapping[CONFIGS[family]])


def known_to_transformers(family):
    """Returns fields, alternative spellings, removed keys, and keys without a field that the code reads."""
    config = CONFIGS[family]
    taken = inspect.getsource(PreTrainedConfig.__post_init__) + inspect.getsource(PreTrainedConfig.convert_rope_params_to_dict)
    keys = {field.name for field in fields(config)} | set(config.attribute_map)
    keys |= set(re.findall(r'kwargs\.(?:pop|get)\("(\w+)"', taken))
    keys |= set(re.findall(r'attr\(self, "(\w+)"', inspect.getsource(PreTrainedConfig.standardize_rope_params))) - {"layer_types"}
    for module in (modelling(family), masking_utils, cache_utils):
        keys |= set(re.findall(r'getattr\((?:self\.)?config, *"([a-z]\w*)"', inspect.getsource(module)))
    return keys


@pytest.mark.parametrize("family", FAMILIES)
def test_every_key_of_transformers_is_classified(family):
    assert not known_to_transformers(family) - placed(family)


@functools.cache
def base(family):
    return random_model(seed=7, family=family, **MODELS[family])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Returns for each family a folder, its config.json, texts and the logits of transformers."""
    made = {}
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        base(family).save_pretrained(folder)
        made[family] = folder, json.loads((folder / "config.json").read_text()), texts_with_logits(base(family), (1, 40, 9), seed=5)
    return made


def forked_score(folder, texts):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in texts))
    return forked("score", "--model", folder, "--input", folder / "texts.jsonl", "--json", "--threads", 1, "--logits",
                  folder / "logits.safetensors")


def our_logits(folder, texts):
    done = forked_score(folder, texts)
    assert done.returncode == 0, done.stderr
    tensors = load_file(folder / "logits.safetensors")
    return [tensors[str(i)].float() for i in range(len(texts))]


def peer_of(family, folder):
    """Returns transformers' model of the folder's config.json, with the weights of the base."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, **experts_of(config)).eval()
    model.load_state_dict(base(family).state_dict())
    return model


def changed(config, key, value):
    """Writes config.json with that key, and removes equivalent keys."""
    rope = ("rope_parameters", "rope_scaling", "rope_theta")
    drop = rope if key in rope else ()
    config = {name: old for name, old in config.items() if name not in drop}
    if key == "partial_rotary_factor":  # the block counts before it
        config["rope_parameters"] = {name: old for name, old in config["rope_parameters"].items() if name != key}
    return config | {key: value}


def cases(table):
    return [(family, key, value) for key, (families, values) in table.items() for family in families for value in values]


@pytest.mark.parametrize("family, key, value", cases(READ))
def test_supported_keys_change_logits_as_in_transformers(family, key, value, saved):
    folder, config, (_, plain) = saved[family]
    (folder / "config.json").write_text(json.dumps(changed(config, key, value)))
    texts, expected = texts_with_logits(peer_of(family, folder), (1, 40, 9), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)
    assert max((a - b).abs().max() for a, b in zip(plain, expected)) > 1e-3, "the value changes nothing"


@pytest.mark.parametrize("family, key, value", cases(SIZES))
def test_sizes_equal_those_of_transformers(family, key, value, tmp_path):
    model = random_model(seed=9, family=family, **MODELS[family] | {key: value})
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())[key] == value
    texts, expected = texts_with_logits(model, (1, 30), seed=5)
    assert_logits_close(our_logits(tmp_path, texts), expected)


@pytest.mark.parametrize("family, key, value", [*cases(REFUSED), *cases(REFUSED_TOO)])
def test_unsupported_keys_are_rejected_by_name(family, key, value, saved):
    folder, config, (texts, _) = saved[family]
    (folder / "config.json").write_text(json.dumps(changed(config, key, value)))
    done = forked_score(folder, texts)
    assert done.returncode == 1 and key in done.stderr and "config.json" in done.stderr, done.stderr


WINDOW = {"use_sliding_window": True, "sliding_window": 7}
TYPES = ["sliding_attention", "full_attention"]


@pytest.mark.parametrize("family, settings", [("qwen3_moe", WINDOW), *(("qwen2_moe", WINDOW | more) for more in ({}, {"max_window_layers": 1}, {"layer_types": TYPES[::-1]})),
                                             *((family, WINDOW | more) for family in ("qwen2", "qwen3") for more in (
    {"max_window_layers": 1}, {"max_window_layers": 0}, {"layer_types": TYPES}, {"layer_types": TYPES, "max_window_layers": 2}))])
def test_windows_that_need_consent_are_those_of_transformers(family, settings, saved):
    folder, config, (_, plain) = saved[family]
    (folder / "config.json").write_text(json.dumps({key: old for key, old in config.items() if key != "layer_types"} | settings))
    texts, expected = texts_with_logits(peer_of(family, folder), (1, 40, 9), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)
    assert max((a - b).abs().max() for a, b in zip(plain, expected)) > 1e-3, "the window changes nothing"


@pytest.mark.parametrize("family", ("olmo", *SPARSE))
def test_blocks_with_silu_alone_reject_another_activation(family, saved):
    folder, config, (texts, _) = saved[family]
    (folder / "config.json").write_text(json.dumps(config | {"hidden_act": "gelu"}))
    done = forked_score(folder, texts)
    assert done.returncode == 1 and "hidden_act" in done.stderr and "config.json" in done.stderr, done.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_without_effect_do_not_change_logits(family, saved):
    folder, config, (texts, expected) = saved[family]
    table = NO_EFFECT | NO_EFFECT_OF.get(family, {})
    generation = {key: 1 for key in GenerationConfig._get_default_generation_params()}
    settings = {key: value for key, (value, why) in table.items() if why}
    (folder / "config.json").write_text(json.dumps(config | generation | settings))
    assert_logits_close(our_logits(folder, texts), expected)
    del settings["dtype"]
    (folder / "config.json").write_text(json.dumps(config | settings))
    peer = peer_of(family, folder)
    assert_logits_close([peer(input_ids=torch.tensor([ids]), use_cache=False).logits[0].detach() for ids in texts], expected)


# Values outside the block that should contain them, older spellings, partial blocks, both spellings at once.
ROPES = [
    {"rope_theta": 300, "rope_parameters": PLAIN}, {"rope_theta": 300.0, "rope_parameters": {}}, {"rope_theta": 300.0, "rope_parameters": None},
    {"rope_theta": 300.0, "rope_scaling": None}, {"rope_theta": 300.0, "rope_scaling": {}}, {"rope_theta": 300.0, "rope_scaling": {"type": "default"}},
    {"rope_theta": 300.0, "rope_parameters": PLAIN | {"rope_theta": 40.0}}, {"rope_theta": None, "rope_parameters": PLAIN | {"rope_theta": 40.0}},
    {"rope_theta": 300.0, "rope_parameters": {"type": "linear", "rope_type": "default"}},
    {"rope_parameters": PLAIN | {"rope_theta": 40.0, "partial_rotary_factor": 1.0}, "partial_rotary_factor": None},
    {"rope_scaling": PLAIN | {"rope_theta": 40.0}, "rope_parameters": PLAIN | {"rope_theta": 40.0}}, {}, {"rope_parameters": PLAIN},
    {"rope_scaling": LINEAR, "rope_parameters": LINEAR, "rope_theta": 300.0}, {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 3}},
    {"rope_scaling": {"type": "yarn", "factor": 3}, "original_max_position_embeddings": 20, "rope_theta": 300.0},
    {"rope_parameters": LLAMA3, "original_max_position_embeddings": 12}, {"rope_parameters": YARN | {"partial_rotary_factor": 1}},
    {"rope_parameters": YARN | {"factor": None}}, {"rope_parameters": LINEAR, "original_max_position_embeddings": 12},
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("settings", ROPES, ids=json.dumps)
def test_rope_settings_are_read_in_every_position(family, settings, saved):
    folder, config, (texts, _) = saved[family]
    config = {key: value for key, value in config.items() if not key.startswith("rope_")} | settings
    (folder / "config.json").write_text(json.dumps(config))
    texts, expected = texts_with_logits(peer_of(family, folder), (40,), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)


# For each RoPE type: its block, and another value of each of its keys.
WIDE = {"factor": 1.5, "original_max_position_embeddings": 9, "rope_theta": 300.0}
SCALED = {
    "default": (PLAIN, {"rope_theta": 300.0}),
    "linear": (LINEAR, {"factor": 4, "rope_theta": 300.0}),
    "dynamic": (DYNAMIC, {"rope_theta": 300.0}),
    "llama3": (LLAMA3 | {"rope_theta": 100.0}, WIDE | {"low_freq_factor": 2.5, "high_freq_factor": 40}),
    "yarn": (YARN | {"rope_theta": 100.0, "beta_fast": 2.5, "beta_slow": 0.4, "mscale": 0.9, "mscale_all_dim": 1.1, "truncate": False},
             WIDE | {"attention_factor": 0.5, "beta_fast": 1.3, "beta_slow": 0.2, "mscale": 3, "mscale_all_dim": 0.3, "truncate": True}),
}
IN_ANY_BLOCK = {"rope_type", "rope_theta", "partial_rotary_factor"}
NO_EFFECT_IN = {("dynamic", "factor"): "up to max_position_embeddings, and longer texts are refused here"}


def logits_of(settings, saved):
    """Returns our logits and those of transformers for these RoPE settings."""
    folder, config, _ = saved["olmoe"]
    (folder / "config.json").write_text(json.dumps({key: old for key, old in config.items() if not key.startswith("rope_")} | settings))
    texts, expected = texts_with_logits(peer_of("olmoe", folder), (40,), seed=5)
    return our_logits(folder, texts), expected


@pytest.mark.parametrize("rope_type", SCALED)
def test_every_key_of_a_rope_block_is_read_or_rejected(rope_type, saved):
    block, others = SCALED[rope_type]
    _, before = logits_of({"rope_parameters": block}, saved)
    for key, value in (others | {key: block[key] * 2 for kind, key in NO_EFFECT_IN if kind == rope_type}).items():
        ours, expected = logits_of({"rope_parameters": block | {key: value}}, saved)
        assert_logits_close(ours, expected)
        assert (max((a - b).abs().max() for a, b in zip(before, expected)) > 1e-3) == ((rope_type, key) not in NO_EFFECT_IN), key
    unknown = RopeParameters.__annotations__.keys() - block.keys() - others.keys() - IN_ANY_BLOCK
    for key in [*unknown, "rope_thetta", "original_max_positions"]:
        assert_refused({"rope_parameters": block | {key: 2.0}}, saved, f"rope_parameters.{key}", f"of type {rope_type}")


def assert_refused(settings, saved, *words):
    folder, config, (texts, _) = saved["olmoe"]
    (folder / "config.json").write_text(json.dumps({key: old for key, old in config.items() if not key.startswith("rope_")} | settings))
    done = forked_score(folder, texts)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in ("config.json", *words)), done.stderr


def without(block, key):
    return {name: value for name, value in block.items() if name != key}


# Values for which transformers fails or warns.
WRONG_VALUES = [
    *((block | {"factor": value}, "factor") for block in (LINEAR, DYNAMIC, LLAMA3, YARN) for value in (0.5, 0, -2.0, "2", True, [2.0], {})),
    *((without(block, "factor"), "factor") for block in (LINEAR, DYNAMIC, LLAMA3, YARN)),
    *((block | {"factor": None}, "factor") for block in (LINEAR, DYNAMIC, LLAMA3)), (YARN | {"factor": None, "original_max_position_embeddings": 400}, "factor"),
    *((block | {"original_max_position_embeddings": value}, "original_max_position_embeddings") for block in (LLAMA3, YARN)
      for value in (0, -3, 30.5, None, "30")),
    *((LLAMA3 | {key: value}, key) for key in ("low_freq_factor", "high_freq_factor") for value in (0, -1.0, None, "1")),
    *((without(LLAMA3, key), key) for key in ("low_freq_factor", "high_freq_factor")), (LLAMA3 | {"high_freq_factor": 1.0}, "low_freq_factor"),
    *((YARN | {key: value}, key) for key in ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim") for value in (-1.0, "1", [])),
    *((YARN | {"truncate": value}, "truncate") for value in (None, 0, "no")), (YARN | {"attention_factor": 0}, "attention_factor"),
    (YARN | {"beta_fast": 1.0, "beta_slow": 2.0}, "beta_slow"), (YARN | {"rope_theta": 1.0}, "rope_theta"), (DYNAMIC | {"factor": 1e300}, "factor"),
    *(({"rope_type": name, "factor": 2.0}, name) for name in ("longrope", "su", "proportional", "mrope", "axial", "Linear", "")),
]


@pytest.mark.parametrize("block, word", WRONG_VALUES, ids=lambda value: value if isinstance(value, str) else json.dumps(value))
def test_invalid_values_in_a_rope_block_are_rejected(block, word, saved):
    assert_refused({"rope_parameters": block}, saved, "rope_parameters", word)
    assert_refused({"rope_scaling": block}, saved, "rope_scaling", word)


@pytest.mark.parametrize("value", [0, None, "12", 2.5])
def test_original_length_outside_the_block_takes_precedence(value, saved):
    assert_refused({"rope_parameters": YARN, "original_max_position_embeddings": value}, saved, "original_max_position_embeddings")


@pytest.mark.parametrize("block", [YARN | {"beta_fast": 0, "beta_slow": None}, YARN | {"mscale": 0, "mscale_all_dim": 1.5}, YARN | {"mscale": 2},
                                   YARN | {"attention_factor": None}, YARN | {"attention_factor": 2}, YARN | {"factor": 1}, YARN | {"rope_theta": 0.5},
                                   YARN | {"original_max_position_embeddings": 1000}, LLAMA3 | {"original_max_position_embeddings": 1000},
                                   without(LLAMA3, "original_max_position_embeddings"), without(YARN, "original_max_position_embeddings")], ids=json.dumps)
def test_unusual_values_are_read_as_in_transformers(block, saved):
    assert_logits_close(*logits_of({"rope_parameters": block}, saved))


def test_contradicting_rope_blocks_are_rejected(saved):
    """transformers reads rope_scaling only, and uses its default if theta is in the other block."""
    folder, config, (texts, _) = saved["olmoe"]
    config = changed(config, "rope_scaling", PLAIN) | {"rope_parameters": PLAIN | {"rope_theta": 5e5}}
    (folder / "config.json").write_text(json.dumps(config))
    done = forked_score(folder, texts)
    assert done.returncode == 1 and "rope_scaling" in done.stderr and "rope_parameters" in done.stderr


@pytest.mark.parametrize("family, key, other", [("olmoe", "num_experts", "num_local_experts"), ("qwen3_moe", "num_experts", "num_local_experts"),
                                                ("mixtral", "num_local_experts", "num_experts"), ("flex_olmo", "num_experts", "num_local_experts"),
                                                ("deepseek_v2", "n_routed_experts", "num_experts"),
                                                ("deepseek_v3", "n_routed_experts", "num_local_experts"), ("glm4_moe", "n_routed_experts", "num_local_experts")])
def test_alternative_spellings_of_keys_are_read(family, key, other, saved):
    folder, config, _ = saved[family]
    config = {name: value for name, value in config.items() if name not in (key, other)} | {other: config.get(key, config.get(other))}
    (folder / "config.json").write_text(json.dumps(config))
    texts, expected = texts_with_logits(peer_of(family, folder), (30,), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_missing_keys_have_the_defaults_of_transformers(family, saved):
    folder, config, _ = saved[family]
    kept = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "intermediate_size", "moe_intermediate_size", "num_experts", "num_local_experts", "num_experts_per_tok",
            "n_routed_experts", "n_shared_experts", "n_group", "topk_group", "first_k_dense_replace", "shared_expert_intermediate_size", "q_lora_rank",
            "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", *(("head_dim",) if family in ("mistral", "glm4_moe") else ()),
            *(("pad_token_id",) if family == "flex_olmo" else ()))  # the default is an id of a larger vocabulary
    (folder / "config.json").write_text(json.dumps({key: config[key] for key in kept if key in config}))
    texts, expected = texts_with_logits(peer_of(family, folder), (30,), seed=5)
    assert_logits_close(our_logits(folder, texts), expected)
    assert EXPERTS


@pytest.mark.parametrize("both", [{"dtype": "float32", "torch_dtype": "float16"}, {"dtype": "float32"}, {"torch_dtype": "float32"}, {}],
                         ids=json.dumps)
def test_a_written_checkpoint_has_its_dtype_in_every_spelling(both, saved, tmp_path):
    _, config, _ = saved["olmoe"]
    config = {key: value for key, value in config.items() if key not in ("dtype", "torch_dtype")} | both
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = forked("init", tmp_path / "config.json", "--out", tmp_path / "model", "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    assert AutoConfig.from_pretrained(tmp_path / "model").dtype == torch.bfloat16
    written = json.loads((tmp_path / "model/config.json").read_text())
    assert {written.get(key, "bfloat16") for key in ("dtype", "torch_dtype")} == {"bfloat16"}


# Keys of generation_config.json that change greedy answers in transformers: a warning names them, with a value that does.
NAMED = {
    "bad_words_ids": [[3]], "begin_suppress_tokens": [3], "constraints": [1], "diversity_penalty": 0.5, "dola_layers": "low", "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 1.2, "exponential_decay_length_penalty": [3, 1.1], "force_words_ids": [[3]], "forced_bos_token_id": 3, "forced_eos_token_id": 3,
    "guidance_scale": 1.5, "min_length": 4, "min_new_tokens": 4, "no_repeat_ngram_size": 2, "num_beam_groups": 2, "num_beams": 3, "penalty_alpha": 0.6,
    "remove_invalid_values": True, "repetition_penalty": 1.05, "sequence_bias": {"3": 1.0}, "stop_strings": ["x"], "suppress_tokens": [3], "token_healing": True,
    "watermarking_config": {"bias": 2.5},
}
OF_THE_CALLER = "how many tokens are sampled, and how, says the caller here"
SAME_TOKENS = "how the same tokens are computed or returned"
UNREAD_OF_GENERATION = {
    **{key: OF_THE_CALLER for key in ["do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "renormalize_logits", "max_length",
                                      "max_new_tokens", "max_time", "num_return_sequences", "length_penalty", "early_stopping"]},
    **{key: SAME_TOKENS for key in ["use_cache", "cache_config", "cache_implementation", "max_cache_len", "low_memory", "compile_config", "disable_compile", "continuous_batching_config",
                                    "prefill_chunk_size", "output_attentions", "output_hidden_states", "output_logits", "output_scores", "return_dict_in_generate", "is_assistant",
                                    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold", "assistant_early_exit", "assistant_ensemble_weight",
                                    "assistant_lookbehind", "target_lookbehind", "prompt_lookup_num_tokens", "max_matching_ngram_size", "speculation_type", "use_mtp",
                                    "pad_token_id", "bos_token_id", "decoder_start_token_id", "transformers_version", "_commit_hash", "_from_model_config"]},
}


def test_every_key_of_generation_is_read_named_or_without_effect():
    known = set(re.findall(r'kwargs\.pop\("(\w+)"', inspect.getsource(GenerationConfig.__init__)))
    assert known - NAMED.keys() - UNREAD_OF_GENERATION.keys() == {"eos_token_id"}


def test_keys_that_change_greedy_answers_are_named(saved):
    folder, config, (texts, expected) = saved["olmoe"]
    (folder / "config.json").write_text(json.dumps(config))
    file = folder / "generation_config.json"
    kept = file.read_text() if file.exists() else None
    try:
        for key, value in NAMED.items():
            file.write_text(json.dumps({key: value, "temperature": 0.5, "top_p": 0.9}))
            said = forked_score(folder, texts).stderr
            assert f"generation_config.json: {key} = " in said and "temperature" not in said, (key, said)
        neutral = GenerationConfig._get_default_generation_params() | {"min_new_tokens": 0, "guidance_scale": 1, "stop_strings": []}
        file.write_text(json.dumps(neutral))
        assert "generation_config" not in forked_score(folder, texts).stderr
    finally:
        file.write_text(kept) if kept is not None else file.unlink()
