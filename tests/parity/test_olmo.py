"""Compares dense OLMo with transformers' OlmoForCausalLM, of the installed version."""
import functools
import json

import pytest
import torch

from peer import (ROOT, assert_logits_close, assert_scores_equal, load_float32, model_of, run, score,
                  texts_with_logits)

# heads, kv heads, head width, F, V, layers, clip_qkv, tied, rope_theta
SHAPES = [
    (4, 4, 8, 24, 97, 2, None, True, 1e4),
    (6, 2, 4, 20, 131, 2, None, False, 1e4),
    (2, 1, 16, 44, 89, 3, 0.8, True, 5e4),
    (4, 2, 12, 100, 203, 2, 1.1, True, 1e4),
    (3, 3, 10, 28, 71, 1, None, True, 1e6),
    (8, 4, 6, 52, 257, 2, 0.5, False, 1e4),
    (5, 1, 8, 18, 113, 2, None, True, 2e4),
    (1, 1, 32, 40, 61, 4, 2.0, False, 1e4),
    (6, 3, 8, 12, 167, 2, None, True, 1e4),
    (2, 2, 20, 56, 79, 5, None, False, 1e3),
    (9, 3, 4, 130, 307, 2, 0.9, True, 1e5),
    (7, 7, 6, 34, 53, 2, None, True, 1e4),
]
NAMES = ("num_attention_heads", "num_key_value_heads", "head_width", "intermediate_size", "vocab_size",
         "num_hidden_layers", "clip_qkv", "tie_word_embeddings", "rope_theta")
LENGTHS = (1, 2, 200, 17, 64, 5, 129)
peer_model = functools.partial(model_of, NAMES, family="olmo")


@pytest.mark.parametrize("index", range(len(SHAPES)), ids=lambda i: "-".join(map(str, SHAPES[i])))
def test_logits_and_logprobs_equal_transformers_for_texts_of_many_lengths(index, tmp_path):
    assert_scores_equal(peer_model(SHAPES[index], seed=index), LENGTHS, 100 + index, tmp_path)


def test_bfloat16_checkpoint_computed_in_float32_equals_transformers(tmp_path):
    peer_model(SHAPES[0], seed=23).to(torch.bfloat16).save_pretrained(tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 33, 150), seed=29)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--dtype", "float32")
    assert_logits_close(logits, expected)


def test_initialised_checkpoint_opens_in_transformers_with_our_logits(tmp_path):
    # The keys of OLMo-1B-hf's config.json.
    settings = {"architectures": ["OlmoForCausalLM"], "model_type": "olmo", "attention_bias": False,
                "attention_dropout": 0.0, "clip_qkv": None, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 48,
                "initializer_range": 0.2, "intermediate_size": 100, "max_position_embeddings": 256,
                "num_attention_heads": 6, "num_hidden_layers": 2, "num_key_value_heads": 6, "pad_token_id": 1,
                "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "float32",
                "use_cache": True, "vocab_size": 211}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 20, 77), seed=43)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    assert_logits_close(logits, expected)


def test_built_in_model_opens_in_transformers_with_our_logits(tmp_path):
    folder = ROOT / "assets" / "tiny-olmo"
    texts, expected = texts_with_logits(load_float32(folder), (1, 30, 120), seed=5)
    _, logits = score(folder, texts, tmp_path, "--dtype", "float32")
    assert_logits_close(logits, expected, tolerance=1e-3)
