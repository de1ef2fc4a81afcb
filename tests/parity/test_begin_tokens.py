"""Compares the ids of every prompt template with transformers' tokenizer, for every model family and for tokenizers that
put nothing, a begin token, or a begin and an end token around a text.
"""
import pytest

from begin_tokens import AROUND, MODELS, check, registered


def test_every_registered_family_is_compared():
    assert registered() == set(MODELS)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("family", MODELS)
def test_ids_of_every_template_equal_the_tokenizers(family, around, tmp_path):
    check(family, around, tmp_path / "m")
