"""Compares a tokenizer folder with AutoTokenizer of transformers 5: tokens and settings in files other than
tokenizer.json.

KEYS lists every key of transformers' tokenizer classes for the supported families. READ keys are compared with
transformers on folders that differ in the key alone. REFUSED keys are rejected with file and key.
"""
import inspect
import itertools
import json
import os
import pathlib
import random
import re
import shutil

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
transformers = pytest.importorskip("transformers")
from transformers import AutoTokenizer
from transformers.models.gemma.tokenization_gemma import GemmaTokenizer
from transformers.models.gpt2.tokenization_gpt2 import GPT2Tokenizer
from transformers.models.gpt_neox.tokenization_gpt_neox import GPTNeoXTokenizer
from transformers.models.llama.tokenization_llama import LlamaTokenizer
from transformers.models.qwen2.tokenization_qwen2 import Qwen2Tokenizer
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.tokenization_utils_tokenizers import TokenizersBackend

from forked import forked
from tokenizer_peer import ENGLISH, fails, run
from test_tokenizer_llama_v5 import KINDS, SPACE

ROOT = pathlib.Path(__file__).parents[2]
TINY = ROOT / "assets" / "tiny-olmoe"
READ, REFUSED = "read", "refused"
BESIDE = "no effect here, because "

STANDARD = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
KEYS = {
    **{key: READ for key in STANDARD},
    "tokenizer_class": READ, "added_tokens_decoder": READ, "additional_special_tokens": READ, "extra_special_tokens": READ,
    "add_prefix_space": READ, "legacy": READ, "split_special_tokens": READ, "chat_template": READ,
    **{key: REFUSED for key in ["auto_map", "fast_tokenizer_files", "fix_mistral_regex", "gguf_file", "init_inputs", "merges", "post_processor", "tokenizer_object", "tokenizer_padding",
                                "tokenizer_truncation", "vocab", "model_specific_special_tokens", "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"]},
    "add_bos_token": BESIDE + "transformers drops it where there is a tokenizer.json",
    "add_eos_token": BESIDE + "transformers drops it where there is a tokenizer.json",
    "clean_up_tokenization_spaces": BESIDE + "transformers does not follow it for BPE",
    "errors": BESIDE + "the library always replaces invalid bytes", "trim_offsets": BESIDE + "offsets are not used",
    "use_default_system_prompt": BESIDE + "the chat template says what opens a conversation",
    "max_length": BESIDE + "texts are encoded whole", "stride": BESIDE + "texts are encoded whole", "truncation_strategy": BESIDE + "texts are encoded whole",
    "truncation_side": BESIDE + "texts are encoded whole", "model_max_length": BESIDE + "texts are encoded whole", "max_len": BESIDE + "texts are encoded whole",
    "padding_side": BESIDE + "sequences are packed without padding", "pad_to_multiple_of": BESIDE + "sequences are packed without padding", "pad_token_type_id": BESIDE + "there are no types of tokens",
    "model_input_names": BESIDE + "it names tensors of a call", "return_token_type_ids": BESIDE + "there are no types of tokens", "verbose": BESIDE + "it is about messages",
    "name_or_path": BESIDE + "it is where the folder came from", "vocab_file": BESIDE + "transformers takes the folder's own files", "tokenizer_file": BESIDE + "transformers takes the folder's own files",
    "merges_file": BESIDE + "transformers takes the folder's own files", "processor_class": BESIDE + "it is for other inputs than text", "backend": BESIDE + "it is a note", "files_loaded": BESIDE + "it is a note",
    "response_template": BESIDE + "answers are not parsed into fields", "response_schema": BESIDE + "answers are not parsed into fields", "chat_control_tokens": BESIDE + "texts are not sanitized",
    "unk_id": BESIDE + "it is for Unigram", "local_files_only": BESIDE + "it is about downloads", "is_local": BESIDE + "it is about downloads", "tokenizer": BESIDE + "transformers does not read it for BPE",
    "_json_truncation": BESIDE + "transformers sets it from tokenizer.json", "_json_padding": BESIDE + "transformers sets it from tokenizer.json", "_spm_precompiled_charsmap": BESIDE + "transformers sets it from tokenizer.json",
    "_commit_hash": BESIDE + "it is about downloads",
}


def test_every_key_of_transformers_is_in_the_table():
    known = set()
    for kind in [GPTNeoXTokenizer, GPT2Tokenizer, Qwen2Tokenizer, LlamaTokenizer, GemmaTokenizer]:
        known |= set(inspect.signature(kind.__init__).parameters) - {"self", "kwargs"}
    for function in [TokenizersBackend.__init__, PreTrainedTokenizerBase.__init__, PreTrainedTokenizerBase._from_pretrained]:
        known |= set(re.findall(r'(?:init_)?kwargs(?:\.(?:pop|get|setdefault)\(|\[)\s*"(\w+)"', inspect.getsource(function)))
        known |= set(re.findall(r'"(\w+)" (?:not )?in (?:init_)?kwargs', inspect.getsource(function)))
    setdefaults = {key for key in known if key not in KEYS}
    assert not setdefaults, f"transformers knows other keys now: {sorted(setdefaults)}"


def folder_of(tmp_path, name="m", base=TINY, **files):
    folder = tmp_path / name
    folder.mkdir()
    for file in ("config.json", "tokenizer.json"):
        if (base / file).exists():
            shutil.copy(base / file, folder)
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    return folder


TEXTS = ["hi<|im_end|>", "<|im_end|> a <|im_start|>b", "<|endoftext|>x<|padding|>", "a <tool> b<image>c", "  x <e1>\n<e2> ", "<s> a</s>", "x<pad>y<unk>z <mask>", "", " a", "a  b"] + ENGLISH[:3]


def auto(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer


def check(folder, texts=TEXTS):
    """Compares ids, decoded text and vocabulary size with AutoTokenizer."""
    peer = auto(folder)
    theirs = [peer(text)["input_ids"] for text in texts]
    assert run(folder, texts) == theirs
    for flags, skip in [((), False), (("--no-special",), True)]:
        assert run(folder, theirs, "--decode", *flags) == [peer.decode(ids, skip_special_tokens=skip) for ids in theirs]
    return peer


def token(content, **flags):
    return {"content": content, "lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True} | flags


def marked(content, **flags):
    return token(content, **flags) | {"__type": "AddedToken"}


CONFIGS = {
    "decoder": {"added_tokens_decoder": {"794": token("<|im_end|>"), "795": token("<|im_start|>", special=False, normalized=True)}, "eos_token": "<|im_end|>"},
    "decoder out of order": {"added_tokens_decoder": {"796": token("<tool>", lstrip=True), "795": token("<|im_end|>", rstrip=True), "0": token("<|endoftext|>")}},
    "decoder and names": {"added_tokens_decoder": {"794": token("<|im_end|>", special=False)}, "eos_token": "<|im_end|>", "bos_token": "<s>", "pad_token": None},
    "names alone": {"eos_token": "<|im_end|>", "bos_token": "<s>", "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": marked("<mask>", lstrip=True), "sep_token": "<e1>", "cls_token": "<e2>"},
    "additional": {"additional_special_tokens": ["<e1>", "<e2>", "<|im_end|>"]},
    "extra list": {"extra_special_tokens": ["<e1>", marked("<e2>", lstrip=True, rstrip=True)]},
    "extra object": {"extra_special_tokens": {"image_token": "<image>", "tool_token": "<tool>"}},
    "extra and additional": {"extra_special_tokens": ["<e1>"], "additional_special_tokens": ["<e2>"]},
    "empty extra and additional": {"extra_special_tokens": [], "additional_special_tokens": ["<e2>"]},
    "own names": {"image_token": "<image>", "a_token": marked("<tool>"), "boi_token": "<e1>"},
    "add_bos": {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>"},
    "prefix": {"add_prefix_space": True}, "no prefix": {"add_prefix_space": False}, "legacy": {"legacy": True}, "not legacy": {"legacy": False},
    "clean up": {"clean_up_tokenization_spaces": True}, "split special": {"split_special_tokens": True, "additional_special_tokens": ["<e1>"]},
    "several": {"padding_side": "left", "model_max_length": 8, "errors": "strict", "unknown_key": 3, "spaces_between_special_tokens": False},
}
CLASSES = [None, "GPTNeoXTokenizer", "GPTNeoXTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend", "GPT2TokenizerFast", "Qwen2Tokenizer", "LlamaTokenizerFast"]


@pytest.mark.parametrize("name", CONFIGS)
def test_tokenizer_config_is_read_as_by_transformers(tmp_path, name):
    for kind in CLASSES if name in ("decoder and names", "names alone", "prefix") else CLASSES[:1] + CLASSES[3:4] + CLASSES[6:7]:
        check(folder_of(tmp_path, str(kind), tokenizer_config=CONFIGS[name] | ({"tokenizer_class": kind} if kind else {})))


MAPS = {
    "text": {"eos_token": "<|im_end|>", "additional_special_tokens": ["<e1>", "<e2>"]},
    "flags": {"eos_token": token("<|im_end|>", lstrip=True), "unk_token": {"content": "<unk>", "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}},
    "extra": {"extra_special_tokens": ["<e1>", {"content": "<e2>", "rstrip": True}], "image_token": "<image>"},
    "null": {"eos_token": "<e1>", "pad_token": "<pad>"},
}


@pytest.mark.parametrize("name", MAPS)
def test_special_tokens_map_is_used_without_added_tokens_decoder(tmp_path, name):
    beside = [None, {"eos_token": "<s>", "additional_special_tokens": ["<tool>"]}, {"added_tokens_decoder": {"794": token("<|im_start|>")}}, {"tokenizer_class": "PreTrainedTokenizerFast"}]
    for i, config in enumerate(beside):
        files = {"special_tokens_map": MAPS[name]} | ({"tokenizer_config": config} if config else {})
        check(folder_of(tmp_path, str(i), **files))


@pytest.mark.parametrize("config", [None, {"eos_token": "<|im_end|>"}, {"added_tokens_decoder": {}}, {"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": ["<e2>"]}])
def test_added_tokens_json_is_used_without_added_tokens_decoder(tmp_path, config):
    added = {"<|im_end|>": 795, "<tool>": 794, "<e2>": 796}
    check(folder_of(tmp_path, added_tokens=added, **({"tokenizer_config": config} if config else {})))


def test_tokenizer_json_alone_gives_the_tokens_of_transformers(tmp_path):
    for i, config in enumerate([None, {"tokenizer_class": "PreTrainedTokenizerFast"}, {"added_tokens_decoder": {}}, {"tokenizer_class": "Qwen2Tokenizer"}]):
        folder = folder_of(tmp_path, str(i), **({"tokenizer_config": config} if config else {}))
        content = json.loads((folder / "tokenizer.json").read_text())
        content["added_tokens"] += [token("<e1>", lstrip=True) | {"id": 794}, token("<e2>", special=False, normalized=True) | {"id": 795}]
        content["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                                     "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}}
        content["normalizer"] = {"type": "NFKC"}
        (folder / "tokenizer.json").write_text(json.dumps(content))
        check(folder, TEXTS + ["ﬁ ½"])


LLAMA_CONFIGS = [{}, {"legacy": True}, {"legacy": False}, {"add_prefix_space": False}, {"add_prefix_space": True, "legacy": None}, {"add_bos_token": False, "add_eos_token": True},
                 {"additional_special_tokens": ["[INST]"]}, {"added_tokens_decoder": {"0": token("<unk>"), "1": token("<s>"), "2": token("</s>")}, "pad_token": "</s>"}]


@pytest.mark.parametrize("model_type", [None, "llama", "mixtral", "olmoe", "gemma", "granitemoe", "glm4_moe"])
@pytest.mark.parametrize("kind", ["LlamaTokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast", None])
def test_text_tokenizer_classes_are_read_as_by_transformers(tmp_path, model_type, kind):
    KINDS["tinyllama"]().save(str(tmp_path / "tokenizer.json"))
    for i, config in enumerate(LLAMA_CONFIGS):
        folder = folder_of(tmp_path, str(i), tmp_path, tokenizer_config=config | ({"tokenizer_class": kind} if kind else {}))
        if model_type:
            (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
        check(folder, TEXTS + [f"{SPACE}a <s> b", " [INST] x", "日本 👍"])


@pytest.mark.parametrize("model_type,kind", itertools.product(["qwen3_moe", "granitemoe", "olmo2", "mixtral", "gpt2", "phimoe", "other"], ["LlamaTokenizer", "GPT2Tokenizer", None]))
def test_the_model_type_selects_the_class(tmp_path, model_type, kind):
    folder = folder_of(tmp_path, tokenizer_config={"tokenizer_class": kind} if kind else {})
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    check(folder)


def test_random_folders_are_read_as_by_transformers(tmp_path):
    draw, contents = random.Random(7), ["<e1>", "<e2>", "<|im_end|>", "<tool>", "<image>", "<|endoftext|>", "<|padding|>", "a", " b"]
    flag = lambda: draw.random() < 0.5
    some = lambda: token(draw.choice(contents), lstrip=flag(), rstrip=flag(), normalized=flag(), special=flag())
    for i in range(150 if os.environ.get("EVENKEEL_NIGHTLY") else 25):
        config = {name: draw.choice([draw.choice(contents), some() | {"__type": "AddedToken"}, None]) for name in STANDARD + ["x_token", "y_token"] if draw.random() < 0.3}
        if flag():
            config["additional_special_tokens"] = draw.sample(contents, 3)
        if flag():
            config["added_tokens_decoder"] = {str(790 + j): some() for j in draw.sample(range(12), 3)}
        if flag():
            config["tokenizer_class"] = draw.choice(CLASSES[1:])
        special_map = {name: draw.choice([draw.choice(contents), some()]) for name in STANDARD if draw.random() < 0.2}
        added = dict(zip(draw.sample(contents, 2), draw.sample(range(794, 800), 2)))
        folder = folder_of(tmp_path, str(i), tokenizer_config=config, **({"special_tokens_map": special_map} if flag() else {}), **({"added_tokens": added} if flag() else {}))
        check(folder)


def test_template_variables_equal_those_of_transformers(tmp_path):
    template = "{% for t in [bos_token, eos_token, unk_token, pad_token, mask_token, image_token, a_token] %}[{{ t }}]{% endfor %}"
    line = json.dumps({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": True})
    for i, config in enumerate([*CONFIGS.values(), {"tokenizer_class": "LlamaTokenizer"}, {"tokenizer_class": "Qwen2Tokenizer"}]):
        folder = folder_of(tmp_path, str(i), tokenizer_config=config | {"chat_template": template})
        done = forked("tokenize", "--model", folder, "--input", "-", "--chat", input=line)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["text"] == auto(folder).apply_chat_template([{"role": "user", "content": "x"}], tokenize=False), config


def test_unsupported_settings_are_rejected_with_file_and_key(tmp_path):
    values = {"auto_map": {"AutoTokenizer": ["a.B", None]}, "fast_tokenizer_files": ["tokenizer.json"], "fix_mistral_regex": True, "init_inputs": ["x"]}
    for key in (key for key, mark in KEYS.items() if mark == REFUSED):
        folder = folder_of(tmp_path, key, tokenizer_config={key: values.get(key, "x")})
        assert f"tokenizer_config.json: {key[:12]}" in fails("--model", folder, "--input", "-")
    bad = {"tokenizer_class": "BertTokenizer", "eos_token": 3, "bos_token": {"content": "<s>"}, "added_tokens_decoder": {"x": token("<e1>")}, "extra_special_tokens": [3], "add_prefix_space": "yes"}
    for key, value in bad.items():
        folder = folder_of(tmp_path, f"bad-{key}", tokenizer_config={key: value})
        assert f"tokenizer_config.json: {key}" in fails("--model", folder, "--input", "-")
    folder = folder_of(tmp_path, "map", special_tokens_map={"eos_token": token("<e1>") | {"odd": 1}})
    assert "special_tokens_map.json: eos_token.odd" in fails("--model", folder, "--input", "-")
    folder = folder_of(tmp_path, "added", added_tokens={"<e1>": "x"})
    assert 'added_tokens.json: <e1> is "x"' in fails("--model", folder, "--input", "-")


def test_a_vocabulary_larger_than_the_embedding_is_rejected(tmp_path):
    folder = folder_of(tmp_path, tokenizer_config={"additional_special_tokens": [f"<e{i}>" for i in range(3000)]})
    shutil.copy(TINY / "model.safetensors", folder)
    for command in (["generate", "--prompt", "x"], ["score", "--input", "-"]):
        done = forked(*command[:1], "--model", folder, *command[1:], input='{"text": "a"}')
        assert done.returncode == 1 and "the model's embedding has" in done.stderr, done.stderr
