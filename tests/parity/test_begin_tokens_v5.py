"""Repeats test_begin_tokens.py with transformers 5, where the tokenizer's class and add_bos_token matter too."""
import pytest

from begin_tokens import AROUND, MODELS, check
from test_begin_tokens import *  # noqa: F403


@pytest.mark.parametrize("config", [{"add_bos_token": True}, {"add_bos_token": False, "add_eos_token": True}, {"tokenizer_class": None}], ids=str)
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("family", ["olmoe", "qwen3_moe", "mixtral"])
def test_settings_of_the_folder_count_as_in_transformers(family, around, config, tmp_path):
    """OLMoE's class puts nothing around a text whatever tokenizer.json says; add_bos_token does not count beside it."""
    check(family, around, tmp_path / "m", **config)
