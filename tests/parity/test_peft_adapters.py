"""Adapters made by PEFT 0.17, one Linear per expert, with ranks and scalings by pattern: its logits and ours."""
import pytest

from peft_made import assert_ours_equals_peft

ALL = ["q_proj", "o_proj", "gate", "gate_proj", "up_proj", "down_proj"]


@pytest.mark.parametrize("settings", [
    dict(r=3, lora_alpha=5, target_modules=ALL),
    dict(r=3, lora_alpha=5, target_modules=ALL, use_rslora=True, rank_pattern={"up_proj": 7}),
    dict(r=4, lora_alpha=6, target_modules=["v_proj", "up_proj"], rank_pattern={"experts.2.up_proj": 1, "up_proj": 2},
         alpha_pattern={r"layers\.1\..*up_proj": 9, "v_proj": 3}),
    dict(r=2, lora_alpha=8, target_modules=r".*experts\.\d+\.(gate|down)_proj", alpha_pattern={r"experts\.[0-4]\.down_proj": 1}),
], ids=["plain", "rslora", "patterns", "regex"])
def test_an_adapter_made_by_peft_has_its_logits_here(settings, tmp_path):
    assert_ours_equals_peft(tmp_path, settings)
