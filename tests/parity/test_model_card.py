"""Tests the export's README.md with transformers 4.57 + PEFT 0.17: its code loads the model that the run scores, with
every gate weighting.
"""
import pytest

from model_card import GATINGS, assert_card_loads_what_the_run_scores, assert_peft_loads_it


@pytest.mark.parametrize("norm, gates", GATINGS)
def test_the_code_loads_the_model_that_the_run_scores(norm, gates, tmp_path):
    assert_card_loads_what_the_run_scores(tmp_path, norm, gates, ("peft", "merged"))


def test_peft_loads_an_export_with_and_without_a_base(tmp_path):
    assert assert_peft_loads_it(tmp_path / "without") is None
    assert assert_peft_loads_it(tmp_path / "with", "--base-model", "allenai/OLMoE-1B-7B-0924") == "allenai/OLMoE-1B-7B-0924"
