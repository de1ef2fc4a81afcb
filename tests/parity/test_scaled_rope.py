"""Rotary positions scaled to longer texts, of random settings, against transformers and PEFT: logits, LoRA training, an exported adapter."""
import functools
import json
import random

import pytest
from peft import PeftModel

from federated_run import federated_run
from peer import V5, assert_logits_close, load_float32, random_model, run, score, texts_with_logits
from sparse_families import TRAINED, attention_of
from training_peer import assert_twenty_steps_agree

OLMOE = dict(family="olmoe", num_experts=7, num_experts_per_tok=4, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
             intermediate_size=20, num_hidden_layers=2, norm_topk_prob=False)
# transformers needs a width of heads in Mixtral's config to scale its positions.
FAMILIES = {"olmoe": OLMOE, **TRAINED, "mixtral": TRAINED["mixtral"] | {"head_dim": 8}}
TYPES = ("linear", "dynamic", "llama3", "yarn")


def settings_of(rope_type, draw):
    """Returns random settings of a RoPE type. Some optional keys are left out."""
    block = {"rope_type": rope_type, "factor": draw.choice([1, 1.5, 4.0, 8, 32.0])}
    if rope_type in ("llama3", "yarn"):
        block["original_max_position_embeddings"] = draw.choice([16, 40, 64, 100])
    if rope_type == "llama3":
        low = draw.choice([0.5, 1, 2.0])
        block |= {"low_freq_factor": low, "high_freq_factor": low * draw.choice([1.5, 4, 9.0])}
    optional = {"attention_factor": 0.8, "beta_fast": draw.choice([4, 32.0]), "beta_slow": draw.choice([0.5, 2]), "mscale": 0.707,
                "mscale_all_dim": draw.choice([0.4, 1]), "truncate": False}
    if rope_type == "yarn":
        block |= {key: value for key, value in optional.items() if draw.random() < 0.4}
    return block


def spelled(block, theta):
    """Returns the settings in the layout of the installed version of transformers."""
    return {"rope_parameters": block | {"rope_theta": theta}} if V5 else {"rope_scaling": block, "rope_theta": theta}


CASES = [(family, rope_type, index) for family in FAMILIES for rope_type in TYPES for index in range(4 if V5 else 2)]


@functools.cache
def case(family, rope_type, index):
    draw = random.Random(f"{family} {rope_type} {index}")
    block = settings_of(rope_type, draw)
    if family == "deepseek_v2" and not V5:
        block.pop("mscale_all_dim", None)  # transformers 4.57 does not scale the scores of V2 by it, those of V3 it does
    rope = spelled(block, draw.choice([300.0, 1e4, 5e5]))
    return random_model(seed=400 + index, vocab_size=89, **FAMILIES[family] | rope)


@pytest.mark.parametrize("family, rope_type, index", CASES)
def test_logits_equal_transformers_beyond_the_trained_length(family, rope_type, index, tmp_path):
    model = case(family, rope_type, index)
    model.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["rope_parameters" if V5 else "rope_scaling"]["rope_type"] == rope_type
    texts, expected = texts_with_logits(model, (1, 120, 9), seed=5)
    _, logits = score(tmp_path, texts, tmp_path)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("family, rope_type", [(family, rope_type) for family in FAMILIES for rope_type in ("llama3", "yarn")])
def test_twenty_steps_of_adamw_follow_transformers_and_peft(family, rope_type, tmp_path):
    block = {"rope_type": rope_type, "factor": 4.0, "original_max_position_embeddings": 8}
    block |= {"low_freq_factor": 0.5, "high_freq_factor": 2.0} if rope_type == "llama3" else {"beta_fast": 4, "attention_factor": 1.4}
    softer = {"logits_scaling": 0.2} if family == "granitemoe" else {}  # so that twenty steps reduce the loss
    model = random_model(seed=61, vocab_size=83, **FAMILIES[family] | softer | spelled(block, 100.0))
    assert_twenty_steps_agree(model, attention_of(family) if family in TRAINED else attention_of("mixtral"), tmp_path, seed=67, learns=0.95)


def test_an_adapter_of_a_scaled_base_opens_in_peft_and_merges(tmp_path):
    rope = spelled({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 1e4)
    model_folder, run_folder = federated_run(tmp_path, "fedit", model=FAMILIES["qwen3_moe"] | rope)
    for kind in ("peft", "merged"):
        run("export", "--run", run_folder, "--format", kind, "--out", tmp_path / kind)
    merged = load_float32(tmp_path / "merged")
    texts, expected = texts_with_logits(merged, (1, 600, 12), seed=89)
    peer = PeftModel.from_pretrained(load_float32(model_folder), tmp_path / "peft").eval()
    assert_logits_close([peer(input_ids=merged.dummy_inputs["input_ids"].new_tensor([ids])).logits[0].detach() for ids in texts], expected)
    _, logits = score(model_folder, texts, tmp_path, "--adapter", run_folder / "adapter")
    assert_logits_close(logits, expected)
