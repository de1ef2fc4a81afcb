"""Does for Phi-3 what test_config_keys_v5.py does for the other families: every key of transformers' config class is
read, rejected, or without effect with a reason. A part of its heads may be rotated, with factors of LongRoPE.
"""
import json

import pytest

from own_keys import SavedModel, assert_defaults_alike, assert_size_read
from test_config_keys_v5 import NO_EFFECT, forked_score, known_to_transformers

SMALL = dict(family="phi3", num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=83, num_hidden_layers=2,
             original_max_position_embeddings=60)
PLAIN = {"rope_type": "default"}
SHORT, LONG = [1.0, 1.1, 1.7, 2.5], [1.0, 2.0, 9.0, 30.5]
FACTORS = {"short_factor": SHORT, "long_factor": LONG}
SCALED = {"rope_type": "longrope", **FACTORS}
HALF = {"partial_rotary_factor": 0.5, "short_factor": SHORT[:2], "long_factor": LONG[:2]}
# key -> values: with another value the same weights have other logits, equal to transformers'.
READ = {
    "rms_norm_eps": [0.5], "hidden_act": ["gelu", "gelu_pytorch_tanh"], "sliding_window": [7, 1], "partial_rotary_factor": [0.5, 0.8, 0.25],
    "rope_theta": [300.0, 17],
    "rope_scaling": [{"type": "longrope", **FACTORS}, {"type": "su", "original_max_position_embeddings": 60, **FACTORS}, {"type": "yarn", **FACTORS}, SCALED | {"rope_theta": 300.0}],
    "rope_parameters": [SCALED, SCALED | HALF, PLAIN | {"partial_rotary_factor": 0.5}, PLAIN | {"rope_theta": 300.0}, SCALED | {"factor": 8.0},
                        SCALED | {"attention_factor": 0.4}, SCALED | {"factor": 0.5}, SCALED | {"original_max_position_embeddings": 60, "factor": None}],
}
SIZES = {"vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 28,
         "tie_word_embeddings": True}
# Exit code 1, and one line that names file and key.
REFUSED = {
    "rope_parameters": [{"rope_type": "linear", "factor": 2.0}, {"rope_type": "llama3", "factor": 2.0}, {"rope_type": "longrope"}, SCALED | {"short_factor": SHORT[:3]},
                        SCALED | {"long_factor": LONG + [1.0]}, SCALED | {"short_factor": [1.0, 1.0, 0, 1.0]}, SCALED | {"short_factor": "1"}, SCALED | {"mscale": 2.0},
                        SCALED | {"original_max_position_embeddings": 40}, SCALED | {"attention_factor": 0}, SCALED | {"factor": "2"}, PLAIN | {"factor": 2.0}, 5,
                        SCALED | {"partial_rotary_factor": 0.5}],
    "partial_rotary_factor": [0, 1.5, -0.5, "0.5", None, 0.4], "original_max_position_embeddings": [0, None, "60"], "rope_theta": [None, 0, "10000"],
    "rope_scaling": [{"type": "linear", "factor": 2.0}, {"type": "longrope"}], "sliding_window": [0, -4], "resid_pdrop": [0.1], "attention_dropout": [0.1],
    "hidden_act": ["relu", "gelu_new"], "rms_norm_eps": [None, "1e-5"], "vocab_size": [None, 83.5], "is_encoder_decoder": [True], "is_causal": [False],
    "attention_chunk_size": [16], "per_layer_config": [{"0": {"hidden_act": "gelu"}}], "kv_sharing_modes": [["none"] * 2],
    "quantization_config": [{"quant_method": "awq"}], "layer_types": [["sliding_attention", "full_attention"]],
}
NO_EFFECT_HERE = {**NO_EFFECT, "embd_pdrop": (0.3, "transformers has the key, but does not compute it")}
ALIKE = (("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor"),)


def test_every_key_of_transformers_is_classified():
    known = known_to_transformers("phi3")
    assert not known - READ.keys() - SIZES.keys() - REFUSED.keys() - NO_EFFECT_HERE.keys() - {"head_dim"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return SavedModel.of(tmp_path_factory.mktemp("phi3"), SMALL, ALIKE)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in READ.items() for value in values])
def test_supported_keys_change_logits_as_in_transformers(key, value, saved):
    saved.assert_read({key: value})


@pytest.mark.parametrize("settings", [
    {"rope_parameters": PLAIN, "partial_rotary_factor": 0.5}, {"rope_parameters": PLAIN | {"partial_rotary_factor": 1.0}, "partial_rotary_factor": 0.5},
    {"rope_scaling": {"type": "longrope", **FACTORS}, "original_max_position_embeddings": 100}, {"rope_parameters": SCALED | HALF, "rope_theta": 90.0},
    {"rope_scaling": {"type": "longrope", **HALF}, "partial_rotary_factor": 0.5}, {"rope_parameters": SCALED, "original_max_position_embeddings": 1000},
    {"rope_scaling": {}, "rope_parameters": None, "rope_theta": 90.0}], ids=json.dumps)
def test_keys_that_meet_are_read_as_in_transformers(settings, saved):
    saved.assert_read(settings, changes=False)


@pytest.mark.parametrize("key, value", SIZES.items())
def test_sizes_equal_those_of_transformers(key, value, tmp_path):
    assert_size_read(SMALL, key, value, tmp_path)


@pytest.mark.parametrize("settings", [{"head_dim": 12}, {"head_dim": 10, "partial_rotary_factor": 0.4}])
def test_a_width_of_heads_beside_the_class_is_read_as_in_transformers(settings, tmp_path):
    assert_size_read(SMALL | settings, "head_dim", settings["head_dim"], tmp_path)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values])
def test_unsupported_keys_are_rejected_by_name(key, value, saved):
    needs_scaling = key == "original_max_position_embeddings"
    saved.assert_refused({key: value} | ({"rope_parameters": SCALED} if needs_scaling else {}), key)


def test_texts_beyond_the_original_length_are_refused(saved):
    """transformers computes them with the long factors, and all shorter texts of their batch too."""
    saved.write({"rope_parameters": SCALED})
    assert forked_score(saved.folder, [[5] * 60]).returncode == 0
    done = forked_score(saved.folder, [[5] * 61])
    assert done.returncode == 1 and "61 tokens, allowed: 60" in done.stderr, done.stderr


def test_keys_without_effect_do_not_change_logits(saved):
    saved.assert_without_effect({key: value for key, (value, _) in NO_EFFECT_HERE.items() if key != "dtype"})


def test_missing_keys_have_the_defaults_of_transformers(tmp_path):
    assert_defaults_alike({"model_type": "phi3", "vocab_size": 32100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                           "intermediate_size": 20}, tmp_path)
