"""Repeats the comparison of Unigram tokenizers with tokenizers 0.23, which knows Unicode 17, and reads folders as
transformers 5 does.
"""
import json

import pytest

from tokenizer_peer import ENGLISH, compare, random_texts, run
from unigram_models import HARD, KINDS

from transformers import AutoTokenizer


@pytest.mark.parametrize("kind", KINDS)
def test_random_strings_are_encoded_and_decoded_equally_by_every_kind(tmp_path, kind):
    file = tmp_path / "tokenizer.json"
    KINDS[kind]().save(str(file))
    compare(file, HARD + ENGLISH + random_texts(250, 61))


@pytest.mark.parametrize("kind", ["t5", "converted", "llama with bytes"])
def test_a_folder_is_read_as_transformers_reads_it(tmp_path, kind):
    KINDS[kind]().save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "additional_special_tokens": ["<extra_0>"]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    theirs, texts = AutoTokenizer.from_pretrained(tmp_path), [*HARD, *ENGLISH, "a<pad>b <extra_0>", *random_texts(100, 62)]
    assert run(tmp_path, texts) == [theirs(text)["input_ids"] for text in texts]
