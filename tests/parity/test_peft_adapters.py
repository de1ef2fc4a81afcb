"""Compares logits of adapters made by PEFT 0.17, with one Linear per expert, and ranks and scalings by pattern."""
import json

import pytest
from peft import PeftModel

from peer import assert_logits_close, load_float32, reference, run, texts_with_logits
from peft_made import assert_ours_equals_peft

ALL = ["q_proj", "o_proj", "gate", "gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize("settings", [
    dict(r=3, lora_alpha=5, target_modules=ALL),
    dict(r=3, lora_alpha=5, target_modules=ALL, use_rslora=True, rank_pattern={"up_proj": 7}),
    dict(r=4, lora_alpha=6, target_modules=["v_proj", "up_proj"], rank_pattern={"experts.2.up_proj": 1, "up_proj": 2},
         alpha_pattern={r"layers\.1\..*up_proj": 9, "v_proj": 3}),
    dict(r=2, lora_alpha=8, target_modules=r".*experts\.\d+\.(gate|down)_proj", alpha_pattern={r"experts\.[0-4]\.down_proj": 1}),
], ids=["plain", "rslora", "patterns", "regex"])
def test_an_adapter_made_by_peft_has_the_same_logits_here(settings, tmp_path):
    assert_ours_equals_peft(tmp_path, settings)


def test_an_adapter_of_unequal_ranks_and_scalings_is_exported_at_one_rank_and_scaling(tmp_path):
    settings = dict(r=4, lora_alpha=6, target_modules=["v_proj", "up_proj"], rank_pattern={"experts.2.up_proj": 1, "up_proj": 2},
                    alpha_pattern={"v_proj": 3})
    assert_ours_equals_peft(tmp_path, settings)
    run("export", "--model", tmp_path / "model", "--adapter", tmp_path / "adapter", "--format", "peft", "--out", tmp_path / "one")
    peer, again = (PeftModel.from_pretrained(load_float32(tmp_path / "model"), tmp_path / name).eval() for name in ("adapter", "one"))
    texts, expected = texts_with_logits(peer, (1, 40), seed=59)
    assert_logits_close([reference(again, ids) for ids in texts], expected)
    assert not json.loads((tmp_path / "one/adapter_config.json").read_text())["rank_pattern"]
