"""Compares OLMoE with transformers' OlmoeForCausalLM, of the installed version."""
import functools
import json
import random

import pytest
import torch

from peer import (ROOT, V5, assert_logits_close, assert_scores_equal, load_float32, model_of, run, score,
                  texts_with_logits, with_top_k)

# E, k, heads, kv heads, head width, F, V, layers, norm_topk_prob, clip_qkv, tied, rope_theta
SHAPES = [
    (5, 2, 4, 4, 8, 24, 97, 2, False, None, False, 1e4),
    (8, 8, 6, 2, 4, 20, 131, 2, True, None, False, 1e4),
    (3, 1, 2, 1, 16, 44, 89, 3, False, 0.8, False, 5e4),
    (16, 4, 4, 2, 12, 36, 203, 2, True, 1.1, True, 1e4),
    (64, 8, 4, 4, 8, 16, 151, 2, False, None, True, 1e6),
    (7, 3, 3, 3, 10, 28, 71, 1, True, None, True, 1e4),
    (12, 5, 8, 4, 6, 52, 257, 2, False, 0.5, True, 1e4),
    (6, 6, 5, 1, 8, 18, 113, 2, False, None, False, 2e4),
    (9, 2, 1, 1, 32, 40, 61, 4, True, 2.0, False, 1e4),
    (32, 1, 6, 3, 8, 12, 167, 2, True, None, False, 1e4),
    (4, 3, 2, 2, 20, 56, 79, 2, False, None, True, 1e3),
    (10, 7, 9, 3, 4, 30, 307, 2, True, 0.9, True, 1e5),
    (24, 6, 4, 1, 14, 22, 101, 3, False, 1.5, False, 1e4),
    (2, 1, 7, 7, 6, 34, 53, 2, True, None, True, 1e4),
]
NAMES = ("num_experts", "num_experts_per_tok", "num_attention_heads", "num_key_value_heads", "head_width",
         "intermediate_size", "vocab_size", "num_hidden_layers", "norm_topk_prob", "clip_qkv", "tie_word_embeddings",
         "rope_theta")
LENGTHS = (1, 2, 200, 17, 64, 5, 129)
peer_model = functools.partial(model_of, NAMES)


@pytest.mark.parametrize("index", range(len(SHAPES)), ids=lambda i: "-".join(map(str, SHAPES[i])))
def test_logits_and_logprobs_equal_transformers_for_texts_of_many_lengths(index, tmp_path):
    assert_scores_equal(peer_model(SHAPES[index], seed=index), LENGTHS, 100 + index, tmp_path)


def test_permuting_the_texts_permutes_the_results(tmp_path):
    model = peer_model(SHAPES[3], seed=3)
    model.save_pretrained(tmp_path / "model")
    texts, _ = texts_with_logits(model, LENGTHS, seed=7)
    _, forward = score(tmp_path / "model", texts, tmp_path)
    _, backward = score(tmp_path / "model", texts[::-1], tmp_path)
    assert_logits_close(backward[::-1], forward, tolerance=2e-5)


@pytest.mark.parametrize("top_k", [1, 2, 4, 8])
def test_top_k_of_a_call_equals_a_checkpoint_with_that_many_experts_per_token(top_k, tmp_path):
    model = peer_model(SHAPES[4], seed=11)
    model.save_pretrained(tmp_path / "model")
    peer = with_top_k(model, top_k, tmp_path / "peer")
    texts, expected = texts_with_logits(peer, (1, 40, 90), seed=13)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--top-k", top_k)
    assert_logits_close(logits, expected)


def test_sharded_checkpoint_gives_the_same_logits(tmp_path):
    model = peer_model(SHAPES[6], seed=17)
    model.save_pretrained(tmp_path / "model", max_shard_size="60KB")
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 2
    texts, expected = texts_with_logits(model, (3, 50), seed=19)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_checkpoint_computed_in_float32_equals_transformers(dtype, tmp_path):
    peer_model(SHAPES[0], seed=23).to(dtype).save_pretrained(tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 33, 150), seed=29)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--dtype", "float32")
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_checkpoint_in_its_own_precision_is_close_to_float32(dtype, tmp_path):
    # All experts are selected, so rounding cannot change the routing.
    peer_model(SHAPES[1], seed=31).to(dtype).save_pretrained(tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 33, 150), seed=37)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    for ours, theirs in zip(logits, expected, strict=True):
        assert (ours - theirs).norm() <= 3e-2 * theirs.norm()


def test_older_and_newer_forms_of_the_config_are_equivalent(tmp_path):
    model = peer_model(SHAPES[2], seed=41)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    settings = json.loads(path.read_text())
    assert ("rope_parameters" in settings) == V5 and ("rope_theta" in settings) == (not V5)
    texts, expected = texts_with_logits(model, (4, 60), seed=47)
    for name in ("rope_theta", "rope_scaling", "rope_parameters", "torch_dtype", "dtype"):
        settings.pop(name, None)
    for form in ({"rope_theta": SHAPES[2][-1], "rope_scaling": None, "torch_dtype": "float32"},
                 {"rope_parameters": {"rope_theta": SHAPES[2][-1], "rope_type": "default"}, "dtype": "float32"}):
        path.write_text(json.dumps(settings | form))
        _, logits = score(tmp_path / "model", texts, tmp_path)
        assert_logits_close(logits, expected)


def test_initialised_checkpoint_opens_in_transformers_with_our_logits(tmp_path):
    settings = {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": 211, "hidden_size": 48,
                "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
                "num_experts": 9, "num_experts_per_tok": 4, "norm_topk_prob": False, "max_position_embeddings": 256,
                "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
                "initializer_range": 0.2, "attention_bias": False, "pad_token_id": 1, "eos_token_id": 2,
                "torch_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 20, 77), seed=43)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    assert_logits_close(logits, expected)


def test_built_in_model_opens_in_transformers_with_our_logits(tmp_path):
    folder = ROOT / "assets" / "tiny-olmoe"
    peer = load_float32(folder)
    draws = random.Random(5)
    texts = [[draws.randrange(peer.config.vocab_size) for _ in range(length)] for length in (1, 30, 120)]
    expected = [peer(input_ids=torch.tensor([ids])).logits[0].detach() for ids in texts]
    _, logits = score(folder, texts, tmp_path, "--dtype", "float32")
    for ours, theirs in zip(logits, expected, strict=True):
        # Rounding may route a token elsewhere; all but a few rows must agree.
        agree = ((ours - theirs).abs().amax(-1) <= 1e-3).float().mean()
        assert agree >= 0.9, f"{agree:.3f} of the rows agree"
