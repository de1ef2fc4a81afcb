"""Tests the export's README.md with transformers 5 + PEFT 0.21: its code loads the model that the run scores, with
every gate weighting.
"""
import itertools
import random

import pytest
from huggingface_hub.utils import HFValidationError, validate_repo_id

from forked import forked
from model_card import GATINGS, assert_card_loads_what_the_run_scores, assert_peft_loads_it


@pytest.mark.parametrize("norm, gates", GATINGS)
def test_the_code_loads_the_model_that_the_run_scores(norm, gates, tmp_path):
    assert_card_loads_what_the_run_scores(tmp_path, norm, gates, ("peft", "peft-fused", "merged"))


def test_peft_loads_an_export_with_and_without_a_base(tmp_path):
    assert assert_peft_loads_it(tmp_path / "without") is None
    assert assert_peft_loads_it(tmp_path / "with", "--base-model", "allenai/OLMoE-1B-7B-0924") == "allenai/OLMoE-1B-7B-0924"


def test_base_model_names_are_validated_as_by_the_hub():
    """Compares --base-model with huggingface_hub's rule for every short text of a few letters, and for longer ones."""
    alphabet = ["a", "Z", "7", "_", "-", ".", "/", "é", " "]
    names = ["".join(letters) for length in (1, 2, 3) for letters in itertools.product(alphabet, repeat=length)]
    chosen = random.Random(7).sample(names, 60) + [
        "allenai/OLMoE-1B-7B-0924", "a" * 96, "a" * 97, "a/" + "b" * 96, "a" * 97 + "/b", "x.git", "a/x.git", "a--b/c", "a/b..c", "-a"]
    for name in chosen:
        # An empty run folder is an error as well, but only after the name is accepted.
        done = forked("export", "--run", "nowhere", "--check", f"--base-model={name}")
        assert done.returncode == 1
        said = done.stderr
        try:
            validate_repo_id(name)
            assert "nowhere" in said, (name, said)
        except HFValidationError:
            assert "--base-model is" in said, (name, said)
