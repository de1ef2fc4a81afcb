"""Does for Gemma 3 what test_config_keys_v5.py does for the other families: every key of transformers' config class is
read, rejected, or without effect with a reason. Its rotary settings, windows and activation have keys of their own.
"""
import inspect
import json
import re

import pytest
import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig

from own_keys import SavedModel, assert_defaults_alike, assert_size_read
from peer import ROOT, assert_logits_close
from test_config_keys_v5 import NO_EFFECT, forked_score, known_to_transformers, our_logits

SMALL = dict(family="gemma3_text", num_attention_heads=4, num_key_value_heads=2, hidden_size=32, intermediate_size=20, vocab_size=83,
             num_hidden_layers=3, head_dim=12, query_pre_attn_scalar=10, sliding_window=9, sliding_window_pattern=2)
FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR = {"rope_type": "linear", "factor": 2.5}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 30, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 30}
# key -> values: with another value the same weights have other logits, equal to transformers'.
READ = {
    "rms_norm_eps": [0.5], "query_pre_attn_scalar": [3], "final_logit_softcapping": [2.0, 30.0], "sliding_window": [7, 1, 300],
    "sliding_window_pattern": [1, 3, 7], "layer_types": [[FULL, SLIDING, FULL], [SLIDING] * 3, [FULL] * 3],
    "hidden_activation": ["gelu", "silu"], "rope_theta": [300.0, 17], "rope_local_base_freq": [40.0, 300],
    "rope_scaling": [LINEAR, LLAMA3, YARN | {"rope_theta": 300.0}],
    "rope_parameters": [{FULL: {"rope_theta": 40.0}}, {SLIDING: {"rope_theta": 40.0}, FULL: None}, {FULL: LINEAR, SLIDING: LINEAR | {"factor": 4}},
                        {FULL: LLAMA3 | {"rope_theta": 90.0}, SLIDING: {"rope_type": "default", "rope_theta": 20.0}}, {SLIDING: YARN}],
}
SIZES = {"vocab_size": 61, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 16,
         "intermediate_size": 28, "tie_word_embeddings": False, "attention_bias": True}
# Exit code 1, and one line that names file and key.
REFUSED = {
    "attn_logit_softcapping": [50.0], "use_bidirectional_attention": [True], "final_logit_softcapping": [0, -3.0, "30"],
    "query_pre_attn_scalar": [0, -1, "256"], "sliding_window": [None, 0, -4], "sliding_window_pattern": [0, -6, None, 2.5],
    "layer_types": [[FULL, "attention", FULL], [FULL], ["chunked_attention"] * 3], "hidden_activation": ["relu", "gelu_new", None],
    "rope_parameters": [{"rope_type": "default", "rope_theta": 300.0}, {FULL: {"rope_thetta": 4.0}}, {"global_attention": {}}, {FULL: {"rope_theta": 0}}, 5,
                        {FULL: {"rope_type": "su", "factor": 2.0}}, {SLIDING: {"factor": 4.0}}, {FULL: LINEAR | {"partial_rotary_factor": 0.5}}],
    "rope_scaling": [{"type": "linear", "factor": 8.0}, {"factor": 8.0}, {"rope_type": "linear"}, {"rope_type": "longrope", "factor": 2.0}],
    "rope_theta": [None, 0, "10000"], "rope_local_base_freq": [None, 0, "10000"], "partial_rotary_factor": [0.5], "attention_dropout": [0.1],
    "rms_norm_eps": [None, "1e-5"], "vocab_size": [None, 83.5], "is_encoder_decoder": [True], "is_causal": [False], "attention_chunk_size": [16],
    "per_layer_config": [{"0": {"hidden_activation": "gelu"}}], "kv_sharing_modes": [["none"] * 3], "quantization_config": [{"quant_method": "awq"}],
}
NO_EFFECT_HERE = {"hidden_act": ("silu", "transformers reads hidden_activation alone"), **NO_EFFECT}
# Keys that exclude each other.
ALIKE = (("rope_parameters", "rope_scaling", "rope_theta", "rope_local_base_freq"), ("layer_types", "sliding_window_pattern"))


def test_every_key_of_transformers_is_classified():
    keys = known_to_transformers("gemma3_text") | set(re.findall(r'kwargs\.(?:pop|get)\("(\w+)"', inspect.getsource(Gemma3TextConfig))) | {"rope_local_base_freq"}
    assert not keys - READ.keys() - SIZES.keys() - REFUSED.keys() - NO_EFFECT_HERE.keys()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return SavedModel.of(tmp_path_factory.mktemp("gemma"), SMALL, ALIKE)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in READ.items() for value in values])
def test_supported_keys_change_logits_as_in_transformers(key, value, saved):
    saved.assert_read({key: value})


@pytest.mark.parametrize("settings", [{"rope_theta": 90.0, "rope_scaling": LINEAR, "rope_local_base_freq": 20.0}, {"rope_parameters": {}, "rope_theta": 90.0},
                                      {"rope_theta": 90.0, "rope_parameters": {SLIDING: {"rope_theta": 40.0}}}, {"rope_scaling": {}, "rope_local_base_freq": 20.0},
                                      {"rope_theta": 90.0, "rope_local_base_freq": 20.0, "rope_parameters": {FULL: {"rope_theta": 40.0}}},
                                      {"rope_scaling": None, "rope_parameters": None}, {"layer_types": None, "sliding_window_pattern": 3},
                                      {"layer_types": [FULL, SLIDING, SLIDING], "sliding_window_pattern": 2}, {"rope_scaling": YARN, "original_max_position_embeddings": 12}],
                         ids=json.dumps)
def test_keys_that_meet_are_read_as_in_transformers(settings, saved):
    saved.assert_read(settings, changes=False)


@pytest.mark.parametrize("key, value", SIZES.items())
def test_sizes_equal_those_of_transformers(key, value, tmp_path):
    assert_size_read(SMALL, key, value, tmp_path)


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values])
def test_unsupported_keys_are_rejected_by_name(key, value, saved):
    saved.assert_refused({key: value}, key)


def test_both_spellings_of_positions_at_once_are_rejected(saved):
    saved.assert_refused({"rope_scaling": LINEAR, "rope_parameters": {FULL: {"rope_theta": 40.0}}}, "rope_scaling", "rope_parameters")


def test_keys_without_effect_do_not_change_logits(saved):
    saved.assert_without_effect({key: value for key, (value, _) in NO_EFFECT_HERE.items() if key != "dtype"})


def test_missing_keys_have_the_defaults_of_transformers(tmp_path):
    assert_defaults_alike({"model_type": "gemma3_text", "vocab_size": 83, "hidden_size": 32, "num_hidden_layers": 7, "num_attention_heads": 4,
                           "intermediate_size": 20}, tmp_path)


def test_a_model_for_images_too_is_refused_and_its_text_part_is_saved_as_documented(tmp_path, monkeypatch):
    keys = ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers", "head_dim", "sliding_window")
    text = Gemma3TextConfig(pad_token_id=1, intermediate_size=20, **{key: SMALL[key] for key in keys})
    vision = SiglipVisionConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    whole = Gemma3ForConditionalGeneration(Gemma3Config(text_config=text.to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=1)).eval()
    whole.save_pretrained(tmp_path / "gemma-3-4b-it")
    ids = [5, 60, 7, 31, 9]
    done = forked_score(tmp_path / "gemma-3-4b-it", [ids])
    assert done.returncode == 1 and '"gemma3"' in done.stderr and "its text part is a gemma3_text" in done.stderr, done.stderr
    page = (ROOT / "docs/troubleshooting.md").read_text()
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python not-run[^\n]*\n(.*?)```", page, re.DOTALL)[1], {})
    expected = whole(input_ids=torch.tensor([ids])).logits[0].detach()
    assert_logits_close(our_logits(tmp_path / "gemma-3-4b-it-text", [ids]), [expected])
