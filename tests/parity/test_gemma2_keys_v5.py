"""Does for Gemma 2 what test_config_keys_v5.py does for the other families: every key of transformers' config class is
read, rejected, or without effect with a reason.
"""
import pytest

from own_keys import SavedModel, assert_defaults_alike, assert_size_read
from test_config_keys_v5 import NO_EFFECT, known_to_transformers

SMALL = dict(family="gemma2", num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=83, num_hidden_layers=3, head_dim=12,
             query_pre_attn_scalar=4, sliding_window=9, attn_logit_softcapping=2.0, final_logit_softcapping=6.0)
FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR = {"rope_type": "linear", "factor": 2.5}
# key -> values: with another value the same weights have other logits, equal to transformers'.
READ = {
    "rms_norm_eps": [0.5], "query_pre_attn_scalar": [3], "final_logit_softcapping": [2.0, None], "attn_logit_softcapping": [0.7, 50.0, None],
    "sliding_window": [7, 1, 300], "layer_types": [[SLIDING, FULL, FULL], [SLIDING] * 3, [FULL] * 3], "hidden_activation": ["gelu", "silu"],
    "rope_theta": [300.0, 17], "rope_scaling": [{"type": "linear", "factor": 3}, LINEAR | {"rope_theta": 300.0}], "rope_parameters": [LINEAR, {"rope_theta": 40.0}],
}
SIZES = {"vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
         "intermediate_size": 28, "tie_word_embeddings": False, "attention_bias": True}
# Exit code 1, and one line that names file and key.
REFUSED = {
    "attn_logit_softcapping": [0, -3.0, "50"], "use_bidirectional_attention": [True], "final_logit_softcapping": [0, -3.0, "30"],
    "query_pre_attn_scalar": [0, -1, "256", None], "sliding_window": [None, 0, -4], "layer_types": [[FULL, "attention", FULL], [FULL]],
    "hidden_activation": ["relu", "gelu_new", None], "rope_parameters": [{"rope_type": "longrope", "factor": 2.0}, {FULL: LINEAR}, 5], "rope_scaling": [{"factor": 4.0}],
    "rope_theta": [None, 0], "partial_rotary_factor": [0.5], "attention_dropout": [0.1], "rms_norm_eps": [None, "1e-5"], "vocab_size": [None, 83.5],
    "is_encoder_decoder": [True], "is_causal": [False], "attention_chunk_size": [16], "per_layer_config": [{"0": {"head_dim": 4}}],
    "kv_sharing_modes": [["none"] * 3], "quantization_config": [{"quant_method": "awq"}],
}
NO_EFFECT_HERE = {"hidden_act": ("silu", "transformers reads hidden_activation alone"), "sliding_window_pattern": (3, "every other layer has the window"), **NO_EFFECT}


def test_every_key_of_transformers_is_classified():
    assert not known_to_transformers("gemma2") - READ.keys() - SIZES.keys() - REFUSED.keys() - NO_EFFECT_HERE.keys()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    model = SavedModel.of(tmp_path_factory.mktemp("gemma2"), SMALL, (("rope_parameters", "rope_scaling", "rope_theta"),))
    del model.config["layer_types"]
    return model


@pytest.mark.parametrize("key, value", [(key, value) for key, values in READ.items() for value in values])
def test_supported_keys_change_logits_as_in_transformers(key, value, saved):
    saved.assert_read({key: value})


@pytest.mark.parametrize("key, value", SIZES.items())
def test_sizes_equal_those_of_transformers(key, value, tmp_path):
    assert_size_read(SMALL, key, value, tmp_path)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values])
def test_unsupported_keys_are_rejected_by_name(key, value, saved):
    saved.assert_refused({key: value}, key)


def test_keys_without_effect_do_not_change_logits(saved):
    saved.assert_without_effect({key: value for key, (value, _) in NO_EFFECT_HERE.items() if key != "dtype"})


def test_missing_keys_have_the_defaults_of_transformers(tmp_path):
    assert_defaults_alike({"model_type": "gemma2", "vocab_size": 83, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                           "intermediate_size": 20}, tmp_path)
