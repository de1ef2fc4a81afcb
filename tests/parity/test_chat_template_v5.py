"""Compares keys of rows that are null, names of reasoning, and named templates, with transformers 5."""
from transformers import AutoTokenizer

from test_chat_template import ALL_KEYS, WITH_KEYS, compare, model_folder
from test_chat_template import test_named_templates_are_chosen_as_by_transformers, tokenizer_json  # noqa: F401
from test_chat_template import test_reasoning_under_any_of_its_names_reaches_the_template  # noqa: F401


def test_keys_that_are_null_are_left_out_as_by_transformers(tokenizer_json, tmp_path):
    folder = model_folder(tmp_path / "m", tokenizer_json, ALL_KEYS)
    compare(folder, WITH_KEYS)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "a", "name": None}, {"role": "assistant", "content": "b", "reasoning_content": None}]
    without = [{key: value for key, value in message.items() if value is not None} for message in messages]
    assert tokenizer.apply_chat_template(messages, tokenize=False) == tokenizer.apply_chat_template(without, tokenize=False)
