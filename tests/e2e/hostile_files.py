"""Checks every input format with every kind of damage: the error names the file and the position in it."""

import json
import shutil
import struct

import pytest

from hostile import DAMAGES, DEEP, SOME_DAMAGES, cases, changed, damaged, put, refused, run  # noqa: F401


@pytest.fixture
def folder(tmp_path):
    return tmp_path


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "ids.jsonl").write_text('{"ids": [7, 8, 9]}\n')
    return tmp_path / "ids.jsonl"


@pytest.fixture
def model(tiny_model, tmp_path):
    return shutil.copytree(tiny_model, tmp_path / "model")


# --- config.json ---

LARGE = 2**62
MODEL_CONFIG = DAMAGES + [
    ("missing", None, []),
    ("no model_type", changed(model_type=None), ["model_type", "olmoe"]),
    ("another family", changed(model_type="gpt2"), ["model_type", "gpt2", "olmoe"]),
    ("a family that is a number", changed(model_type=7), ["model_type", "7"]),
    ("a family of 10,000 letters", changed(model_type="x" * 10_000), ["model_type", "xxx", "olmoe"]),
    ("no vocab_size", changed(vocab_size=None), ["vocab_size", "missing"]),
    ("vocab_size text", changed(vocab_size="640"), ["vocab_size", '"640"']),
    ("vocab_size 0", changed(vocab_size=0), ["vocab_size", "is 0", "allowed: 1"]),
    ("vocab_size below 0", changed(vocab_size=-5), ["vocab_size", "-5"]),
    ("vocab_size a fraction", changed(vocab_size=640.5), ["vocab_size", "640.5"]),
    ("vocab_size 2^62", changed(vocab_size=LARGE), [str(LARGE)]),
    ("vocab_size 2^63", changed(vocab_size=2**63), ["vocab_size"]),
    ("vocab_size another", changed(vocab_size=641), ["model.embed_tokens.weight", "641"]),
    ("hidden_size odd", changed(hidden_size=30), ["hidden_size", "30", "num_attention_heads"]),
    ("hidden_size 2^62", changed(hidden_size=LARGE), [str(LARGE)]),
    ("intermediate_size another", changed(intermediate_size=20), ["20"]),
    ("no layers", changed(num_hidden_layers=0), ["num_hidden_layers", "is 0", "allowed: 1"]),
    ("more layers", changed(num_hidden_layers=3), ["model.layers.2"]),
    ("fewer layers", changed(num_hidden_layers=1), ["model.layers.1", "unexpected"]),
    ("2^62 layers", changed(num_hidden_layers=LARGE), ["layers"]),
    ("heads that do not divide", changed(num_key_value_heads=3), ["num_key_value_heads", "3"]),
    ("heads 0", changed(num_attention_heads=0), ["num_attention_heads", "0"]),
    ("more experts", changed(num_experts=13), ["13"]),
    ("experts 2^62", changed(num_experts=LARGE), [str(LARGE)]),
    ("more experts per token than there are", changed(num_experts_per_tok=13), ["num_experts_per_tok", "13", "12"]),
    ("RoPE scaled by tables", changed(rope_scaling={"type": "longrope", "factor": 2}), ["rope_scaling", "longrope", "linear"]),
    ("scaled RoPE without a factor", changed(rope_scaling={"type": "linear"}), ["rope_scaling", "factor"]),
    ("RoPE scaled by less than 1", changed(rope_scaling={"type": "dynamic", "factor": 0.5}), ["rope_scaling.factor", "0.5", "1 or more"]),
    ("RoPE parameters a list", changed(rope_parameters=[1]), ["rope_parameters"]),
    ("RoPE of another kind", changed(rope_parameters={"rope_type": "axial"}), ["rope_type", "axial", "default"]),
    ("positions of null", changed(rope_parameters={"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": None}), ["original_max_position_embeddings"]),
    ("rope_type a number", changed(rope_parameters={"rope_type": 3}), ["rope_type", "3"]),
    ("rope_theta text", changed(rope_parameters={"rope_theta": "x"}), ["rope_theta", '"x"']),
    ("another activation", changed(hidden_act="gelu"), ["hidden_act", "gelu", "silu"]),
    ("biases that are not there", changed(attention_bias=True), ["q_proj.bias", "missing"]),
    ("a key of no RoPE in its block", changed(rope_parameters={"rope_thetta": 5.0}), ["rope_parameters.rope_thetta", "rope_theta"]),
    ("two blocks that differ", changed(rope_parameters={"rope_theta": 5.0}, rope_scaling={"type": "default"}), ["rope_scaling", "rope_parameters"]),
    ("dropout", changed(attention_dropout=0.1), ["attention_dropout", "0.1", "no dropout", "0.0 in a copy of config.json"]),
    ("tied text", changed(tie_word_embeddings="no"), ["tie_word_embeddings", '"no"']),
    ("clip_qkv text", changed(clip_qkv="x"), ["clip_qkv", '"x"']),
    ("rms_norm_eps text", changed(rms_norm_eps="x"), ["rms_norm_eps", '"x"']),
    ("positions text", changed(max_position_embeddings="x"), ["max_position_embeddings", '"x"']),
    ("eos text", changed(eos_token_id="x"), ["eos_token_id", '"x"']),
    ("norm_topk_prob a number", changed(norm_topk_prob=1), ["norm_topk_prob", "1"]),
    ("a deep value", lambda text: text.replace('"silu"', "[" * DEEP + "]" * DEEP), []),
]


@pytest.mark.parametrize("change, says", cases(MODEL_CONFIG))
def test_an_invalid_model_config_is_rejected(model, texts, folder, change, says):
    damaged(model / "config.json", change)
    refused("score", "--model", model, "--input", texts, says=["[checkpoint]", model, *says], untouched=folder)


# --- safetensors ---

def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype="F32", shape=(2, 3), begin=0, end=24):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def of(header, data=bytes(24)):
    return lambda _: safetensors(header, data)


def repacked(change):
    """Returns the file with a changed JSON header and changed data."""
    def repack(old):
        length = struct.unpack("<Q", old[:8])[0]
        return safetensors(*change(json.loads(old[8:8 + length]), bytearray(old[8 + length:])))
    return repack


def overwritten(bytes_of_last_value):
    def change(header, data):
        data[-4:] = bytes_of_last_value
        return header, bytes(data)
    return repacked(change)


def retyped(header, data):
    header["model.norm.weight"]["dtype"] = "I32"
    return header, bytes(data)


def renamed(header, data):
    header["model.norm.bias"] = header.pop("model.norm.weight")
    return header, bytes(data)


def transposed(header, data):
    header["lm_head.weight"]["shape"].reverse()
    return header, bytes(data)


WEIGHTS = [
    ("missing", None, []),
    ("empty", lambda _: b"", ["0 bytes"]),
    ("seven bytes", lambda _: bytes(7), ["7 bytes"]),
    ("cut in the header", lambda old: old[:40], ["truncated"]),
    ("cut in the data", lambda old: old[:-1], ["truncated"]),
    ("bytes behind", lambda old: old + b"x", ["follow the last tensor"]),
    ("a header of 2^63 bytes", lambda old: struct.pack("<Q", 2**63) + old[8:], ["header would be"]),
    ("a header without JSON", of(b"x" * 10), ["JSON"]),
    ("a header that is a list", of(b"[]", b""), ["object"]),
    ("a NUL in the header", of(b'{}\0', b""), []),
    ("a deep header", of(b'{"a":' * DEEP), []),
    ("a tensor that is a number", of({"a": 3}), [": a is 3"]),
    ("no dtype", of({"a": {"shape": [1], "data_offsets": [0, 4]}}), [": a.dtype is missing"]),
    ("another dtype", of({"a": tensor("F8")}), ["F8"]),
    ("a dtype that is a deep list", of(b'{"a": {"dtype": ' + b"[" * DEEP + b"]" * DEEP + b', "shape": [1], "data_offsets": [0, 4]}}'), []),
    ("a shape below 0", of({"a": tensor(shape=(-2, -3))}), ["a.shape", "-2"]),
    ("a shape of text", of({"a": tensor(shape="23")}), ["a.shape"]),
    ("a shape whose product overflows", of({"a": tensor(shape=(2**32, 2**32, 0))}), []),
    ("a shape of 0 and 2^62", of({"a": tensor(shape=(0, LARGE, LARGE), end=0)}, b""), []),
    ("a shape of 2^64", of({"a": tensor(shape=(2**64,))}), ["a.shape"]),
    ("three offsets", of({"a": {**tensor(), "data_offsets": [0, 12, 24]}}), ["tensor a", "data_offsets"]),
    ("offsets turned", of({"a": tensor(begin=24, end=0)}), ["tensor a", "data_offsets"]),
    ("tensors that overlap", of({"a": tensor(), "b": tensor(begin=12, end=36)}, bytes(36)), ["tensor b", "inside the one before"]),
    ("a hole between tensors", of({"a": tensor(), "b": tensor(begin=32, end=56)}, bytes(56)), ["before tensor b"]),
    ("a name twice", of(b'{"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}, "a": {"dtype": "U8", "shape": [1], '
                        b'"data_offsets": [1, 2]}}', b"xy"), ["twice"]),
    ("metadata that is a list", of({"__metadata__": [], "a": tensor()}), ["__metadata__"]),
    ("metadata that is a number", of({"__metadata__": {"format": 3}, "a": tensor()}), ["__metadata__", "format"]),
    ("a name of 10,000 letters", of({"x" * 10_000: tensor("F8")}), ["xxx", "F8"]),
    ("a name with a newline", of({"a\nevenkeel: b": tensor("F8")}), ["F8"]),
]

TENSORS = [
    ("a tensor too few and one too many", repacked(renamed), ["model.norm.weight", "missing"]),
    ("a tensor turned", repacked(transposed), ["lm_head.weight", "[32, 640]", "[640, 32]"]),
    ("whole numbers", repacked(retyped), ["model.norm.weight", "Int"]),
    ("a NaN", overwritten(b"\x00\x00\xc0\x7f"), ["not finite"]),
    ("an infinity", overwritten(b"\x00\x00\x80\xff"), ["not finite"]),
]


@pytest.mark.parametrize("change, says", cases(WEIGHTS))
def test_a_damaged_weights_file_is_rejected(model, texts, folder, change, says):
    file = model / "model.safetensors"
    file.unlink() if change is None else file.write_bytes(change(file.read_bytes()))
    refused("score", "--model", model, "--input", texts, says=["[checkpoint]", "model.safetensors", *says], untouched=folder)


@pytest.mark.parametrize("change, says", cases(TENSORS))
def test_weights_that_do_not_fit_the_model_are_rejected(model, texts, folder, change, says):
    file = model / "model.safetensors"
    file.write_bytes(change(file.read_bytes()))
    refused("score", "--model", model, "--input", texts, says=["[checkpoint]", model, *says], untouched=folder)


INDEX = SOME_DAMAGES + [
    ("no map", put('{"metadata": {}}'), ["weight_map"]),
    ("an empty map", put('{"weight_map": {}}'), ["weight_map"]),
    ("a map that is a list", put('{"weight_map": ["a"]}'), ["weight_map"]),
    ("a file that is a number", put('{"weight_map": {"a": 3}}'), ["weight_map.a", "3"]),
    ("a file elsewhere", put('{"weight_map": {"a": "../model.safetensors"}}'), ["weight_map.a", "../model.safetensors"]),
    ("a file that is not there", put('{"weight_map": {"a": "b.safetensors"}}'), ["b.safetensors"]),
    ("a NUL in a name", put('{"weight_map": {"a": "shard.safetensors\\u0000"}}'), []),
    ("a file of 300 letters", put(json.dumps({"weight_map": {"a": "x" * 300}})), ["xxx"]),
    ("a tensor that no shard holds", put('{"weight_map": {"a": "shard.safetensors"}}'), ["shard.safetensors"]),
]


@pytest.mark.parametrize("change, says", cases(INDEX))
def test_an_invalid_index_of_shards_is_rejected(model, texts, folder, change, says):
    (model / "model.safetensors").rename(model / "shard.safetensors")
    damaged(model / "model.safetensors.index.json", change)
    refused("score", "--model", model, "--input", texts, says=[model, *says], untouched=folder)


# --- tokenizer.json ---

def model_part(**changes):
    return lambda text: json.dumps({**json.loads(text), "model": {**json.loads(text)["model"], **changes}})


def sequences(part, key, leaf):
    """Returns a component that consists of nested sequences."""
    def change(text):
        rest = json.loads(text)
        rest[part] = "HERE"
        nested = ('{"type": "Sequence", "%s": [' % key) * DEEP + leaf + "]}" * DEEP
        return json.dumps(rest).replace('"HERE"', nested)
    return change


def split(pattern, **more):
    return changed(pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": pattern, **more},
                                                                        {"type": "ByteLevel"}]})


TOKENIZER = DAMAGES + [
    ("missing", None, []),
    ("another version", changed(version="2.0"), ["version", "2.0", "1.0"]),
    ("no model", changed(model=None), ["model"]),
    ("a model of another kind", model_part(type="WordLevel"), ["model.type", "WordLevel", "BPE"]),
    ("a unigram model with the pieces of BPE", model_part(type="Unigram"), ["model.vocab", "expected a list"]),
    ("a kind that is a number", model_part(type=3), ["model.type"]),
    ("a vocabulary that is a list", model_part(vocab=["a"]), ["model.vocab"]),
    ("an id below 0", model_part(vocab={"a": -1}), ["model.vocab.a", "-1"]),
    ("an id of 2^62", model_part(vocab={"a": LARGE}), ["model.vocab.a", str(LARGE)]),
    ("an id that is text", model_part(vocab={"a": "1"}), ["model.vocab.a"]),
    ("an id twice", model_part(vocab={"a": 1, "b": 1}), ["model.vocab", "id 1"]),
    ("merges that are no list", model_part(merges={"a": "b"}), ["model.merges"]),
    ("a merge of one", model_part(merges=["ab"]), ["model.merges[0]", "ab"]),
    ("a merge of three", model_part(merges=[["a", "b", "c"]]), ["model.merges[0]"]),
    ("a merge of numbers", model_part(merges=[[1, 2]]), ["model.merges[0]"]),
    ("a merge of what there is not", model_part(merges=["no way"]), ["merges", '"no"']),
    ("dropout", model_part(dropout=0.1), ["model.dropout", "0.1"]),
    ("a suffix", model_part(end_of_word_suffix="</w>"), ["end_of_word_suffix", "</w>"]),
    ("byte fallback that is text", model_part(byte_fallback="yes"), ["byte_fallback", '"yes"']),
    ("a flag that is text", model_part(fuse_unk="yes"), ["fuse_unk", '"yes"']),
    ("an unknown token that there is not", model_part(unk_token="<none>"), ["<none>"]),
    ("added tokens that are no list", changed(added_tokens={}), ["added_tokens"]),
    ("an added token without content", changed(added_tokens=[{"id": 1}]), ["added_tokens[0].content"]),
    ("an added token with an id of text", changed(added_tokens=[{"id": "1", "content": "a"}]), ["added_tokens[0].id"]),
    ("another normalizer", changed(normalizer={"type": "Nmt"}), ["normalizer.type", "Nmt", "NFC"]),
    ("a table of replacements that is missing", changed(normalizer={"type": "Precompiled"}), ["normalizer.precompiled_charsmap is missing"]),
    ("a normalizer that is text", changed(normalizer="NFC"), ["normalizer"]),
    ("normalizers that are no list", changed(normalizer={"type": "Sequence", "normalizers": 3}), ["normalizer.normalizers"]),
    ("another pre-tokenizer", changed(pre_tokenizer={"type": "Whitespace"}), ["pre_tokenizer.type", "Whitespace", "ByteLevel"]),
    ("pre-tokenizers that are text", changed(pre_tokenizer={"type": "Sequence", "pretokenizers": "ByteLevel"}), ["pre_tokenizer"]),
    ("a pre-tokenizer whose kind is a number", changed(pre_tokenizer={"type": 3}), ["pre_tokenizer"]),
    ("a split without a pattern", split({}), ["pattern"]),
    ("a split by a bad pattern", split({"Regex": "(["}, behavior="Isolated"), ["(["]),
    ("a split of another behaviour", split({"String": " "}, behavior="Sideways"), ["behavior", "Sideways", "Isolated"]),
    ("another post-processor", changed(post_processor={"type": "Sideways"}), ["post_processor.type", "Sideways"]),
    ("a template without tokens", changed(post_processor={"type": "TemplateProcessing", "single": []}), ["post_processor.special_tokens"]),
    ("a template of what there is not", changed(post_processor={"type": "TemplateProcessing", "special_tokens": {},
                                                                "single": [{"SpecialToken": {"id": "<s>"}}]}), ["<s>"]),
    ("another decoder", changed(decoder={"type": "CTC"}), ["decoder.type", "CTC"]),
    ("a decoder without its text", changed(decoder={"type": "Metaspace"}), ["decoder.replacement"]),
    ("deep normalizers", sequences("normalizer", "normalizers", '{"type": "NFC"}'), []),
    ("deep pre-tokenizers", sequences("pre_tokenizer", "pretokenizers", '{"type": "ByteLevel"}'), []),
    ("deep post-processors", sequences("post_processor", "processors", '{"type": "ByteLevel"}'), []),
]


@pytest.mark.parametrize("change, says", cases(TOKENIZER))
def test_an_invalid_tokenizer_is_rejected(model, folder, change, says):
    (folder / "text").write_text("Once upon a time\n")
    damaged(model / "tokenizer.json", change)
    refused("tokenize", "--model", model / "tokenizer.json", "--input", folder / "text", says=["tokenizer.json", *says], untouched=folder)


# --- rows ---

ROW = {"instruction": "Is water wet?\n\nAnswer format: true/false", "input": "", "output": "the correct answer is true",
       "answer": "true"}


def rows(*changes):
    return put(json.dumps([ROW, *({**ROW, **change} for change in changes)]))


def without(key):
    return put(json.dumps([ROW, {name: text for name, text in ROW.items() if name != key}]))


ROWS = SOME_DAMAGES[:3] + [
    ("an object", put(json.dumps({"rows": [ROW]})), []),
    ("no rows", put("[]"), []),
    ("a row that is text", put(json.dumps([ROW, "row"])), ["1"]),
    ("a row that is a list", put(json.dumps([ROW, [ROW]])), ["1"]),
    ("no instruction", without("instruction"), ["1", "instruction"]),
    ("no output", without("output"), ["1", "output"]),
    ("no answer", without("answer"), ["1", "answer"]),
    ("an output that is a number", rows({"output": 3}), ["1", "output"]),
    ("an answer that is null", rows({"answer": None}), ["1", "answer"]),
    ("an input that is a list", rows({"input": []}), ["1", "input"]),
]


@pytest.mark.parametrize("change, says", cases([row for row in ROWS if row[0] != "a list"]))
def test_invalid_commonsense_rows_are_rejected(tiny_model, folder, change, says):
    (folder / "boolq").mkdir()
    damaged(folder / "boolq/test.json", change)
    refused("evaluate", "--model", tiny_model, "--tasks", "boolq", "--data", folder, says=["boolq/test.json", *says],
            untouched=folder)


def question(**changes):
    return {"id": "q", "question": "What?", "is_impossible": False, "answers": [{"text": "N2", "answer_start": 0}], **changes}


def document(*questions, **changes):
    return put(json.dumps({"data": [{"docid": "200", "source": "3GPP-Specs#38.1-1", "paragraphs": [
        {"context": "N2 is an interface.", "qas": questions}], **changes}]}))


def answer(**changes):
    return document(question(answers=[{"text": "N2", "answer_start": 0, **changes}]))


TELEQUAD = SOME_DAMAGES + [
    ("no documents", put('{"data": []}'), []),
    ("documents that are an object", put('{"data": {}}'), ["data"]),
    ("a document that is text", put('{"data": ["a"]}'), ["data[0]"]),
    ("a document without a number", document(question(), docid=None), ["data[0]", "docid"]),
    ("a number that is none", document(question(), docid="two"), ["two", "order"]),
    ("no source", document(question(), source=3), ["data[0]", "source"]),
    ("no paragraphs", document(paragraphs=None), ["data[0]", "paragraphs"]),
    ("a paragraph that is a number", document(paragraphs=[3]), ["data[0]"]),
    ("an empty context", document(paragraphs=[{"context": "", "qas": []}]), ["data[0]", "context"]),
    ("questions that are text", document(paragraphs=[{"context": "a", "qas": "b"}]), ["data[0]", "qas"]),
    ("no question", document(question(question=None)), ["qas[0]", "question"]),
    ("a flag that is text", document(question(is_impossible="no")), ["qas[0]", "is_impossible"]),
    ("no answers", document(question(answers=[])), ["qas[0]", "no answer"]),
    ("answers that are an object", document(question(answers={})), ["qas[0]", "answers"]),
    ("an answer elsewhere", answer(answer_start=3), ["answers[0]", "N2", "3"]),
    ("a start below 0", answer(answer_start=-1), ["answers[0]", "-1"]),
    ("a start of 2^62", answer(answer_start=LARGE), ["answers[0]", str(LARGE)]),
    ("a start of 2^63", answer(answer_start=2**63), ["answers[0]", str(2**63)]),
    ("a start that is a fraction", answer(answer_start=0.5), ["answers[0]", "answer_start"]),
    ("an answer of 100,000 letters", answer(text="x" * 100_000), ["answers[0]", "xxx"]),
]


@pytest.mark.parametrize("change, says", cases(TELEQUAD))
def test_invalid_telequad_rows_are_rejected(tiny_model, folder, change, says):
    damaged(folder / "TeleQuAD-v4-full.json", change)
    refused("evaluate", "--model", tiny_model, "--tasks", "telequad", "--data", folder, says=["elequad" if says == ["two", "order"]
                                                                                            else "TeleQuAD-v4-full.json", *says],
            untouched=folder)


# --- lines of texts ---

SCORE_LINES = [
    ("no JSON", '{"text": "fine"', ["JSON"]),
    ("a list", "[1, 2]", []),
    ("neither text nor ids", '{"words": 3}', ["text", "ids"]),
    ("a text that is a number", '{"text": 3}', ["text", "3"]),
    ("an id that is text", '{"ids": [1, "two"]}', ["two"]),
    ("an id that is a fraction", '{"ids": [1.5]}', ["1.5"]),
    ("an id that is a deep list", '{"ids": [' + "[" * DEEP + "]" * DEEP + "]}", []),
    ("an id beyond the vocabulary", '{"ids": [1, 640]}', ["640", "639"]),
    ("an id below 0", '{"ids": [-1]}', ["-1"]),
    ("an id of 2^63", json.dumps({"ids": [2**63]}), [str(2**63)]),
    ("no ids", '{"ids": []}', ["no tokens"]),
    ("an empty text", '{"text": ""}', ["no tokens"]),
    ("a text that is too long", json.dumps({"ids": [4] * 1025}), ["1025", "1024"]),
    ("a text that is not UTF-8", b'{"text": "\xff"}', []),
    ("a NUL", b'{"ids": [1]}\0', []),
    ("a text and ids", '{"text": "a", "ids": [1]}', ["several texts to score", "allowed are"]),
    ("a text and a completion", '{"text": "a", "completion": "b"}', ["several texts to score"]),
    ("ids and a prompt", '{"ids": [1], "prompt": "a", "completion": "b"}', ["several texts to score"]),
    ("a prompt alone", '{"prompt": "a"}', ["allowed are"]),
]


@pytest.mark.parametrize("line, says", cases(SCORE_LINES))
def test_an_invalid_line_to_score_is_rejected(tiny_model, folder, line, says):
    (folder / "texts.jsonl").write_bytes(b'{"ids": [7]}\n' + (line if isinstance(line, bytes) else line.encode()) + b"\n")
    refused("score", "--model", tiny_model, "--strict", "--input", folder / "texts.jsonl", says=["texts.jsonl", "line 2", *says],
            untouched=folder)


TOKENIZE_LINES = [
    ("not UTF-8", [], b"a\xff\n", ["not UTF-8", "offset 1"]),
    ("no JSON", ["--jsonl"], b"a\n", ["JSON"]),
    ("a number", ["--jsonl"], b"3\n", ["3", "string"]),
    ("a surrogate", ["--jsonl"], b'"\\ud800"\n', []),
    ("ids that are none", ["--decode"], b'{"ids": [1]}\n', ["list"]),
    ("an id that is text", ["--decode"], b'["a"]\n', ['"a"']),
    ("an id beyond", ["--decode"], b"[640]\n", ["640", "639"]),
    ("an id below 0", ["--decode"], b"[-1]\n", ["-1"]),
    ("an id of 2^64", ["--decode"], b"[18446744073709551616]\n", []),
    ("deep lists", ["--decode"], b"[" * DEEP + b"\n", []),
]


@pytest.mark.parametrize("flags, line, says", cases(TOKENIZE_LINES))
def test_an_invalid_line_to_tokenize_is_rejected(tiny_model, folder, flags, line, says):
    (folder / "lines").write_bytes(line)
    refused("tokenize", "--model", tiny_model, "--input", folder / "lines", *flags, says=["lines:1", *says], untouched=folder)


def test_a_file_without_lines_is_rejected(tiny_model, folder):
    (folder / "texts.jsonl").write_text("\n \n")
    refused("score", "--model", tiny_model, "--input", folder / "texts.jsonl", says=["texts.jsonl", "no lines"], untouched=folder)


# --- adapters ---

ADAPTER = SOME_DAMAGES + [
    ("missing", None, []),
    ("no kind", changed(peft_type=None), []),
    ("another kind", changed(peft_type="IA3"), ["peft_type", "IA3", "LORA"]),
    ("no rank", changed(r=None), ["r"]),
    ("rank 0", changed(r=0), ["r", "0"]),
    ("rank below 0", changed(r=-3), ["r", "-3"]),
    ("rank that is text", changed(r="3"), ["r"]),
    ("rank of 10^12", changed(r=10**12), ["r", str(10**12)]),
    ("no alpha", changed(lora_alpha=None), ["lora_alpha"]),
    ("alpha that is text", changed(lora_alpha="6"), ["lora_alpha"]),
    ("bias", changed(bias="all"), ["bias", "all", "none"]),
    ("bias that is a deep list", lambda text: text.replace('"none"', "[" * DEEP + "]" * DEEP), []),
    ("DoRA", changed(use_dora=True), ["use_dora", "true"]),
    ("root scaling that is text", changed(use_rslora="yes"), ["use_rslora", '"yes"']),
    ("modules of their own", changed(modules_to_save=["lm_head"]), ["modules_to_save", "lm_head"]),
    ("no rank by module", changed(rank_pattern={"q_proj": 0}), ["rank_pattern", "q_proj"]),
    ("a scale by module that is text", changed(alpha_pattern={"q_proj": "8"}), ["alpha_pattern", "q_proj"]),
    ("more names than a model has", changed(rank_pattern={str(name): 1 for name in range(50_000)}), ["values and keys", "100000"]),
    ("a start that changes the base", changed(init_lora_weights="pissa"), ["init_lora_weights", "pissa"]),
    ("tokens that switch it on", changed(alora_invocation_tokens=[1, 2]), ["alora_invocation_tokens"]),
    ("a key of tomorrow", changed(use_everything=True), ["use_everything"]),
]


def adapter_of(run, folder):
    return shutil.copytree(run / "adapter", folder / "adapter")


@pytest.mark.parametrize("change, says", cases(ADAPTER))
def test_an_invalid_adapter_config_is_rejected(run, tiny_model, texts, folder, change, says):
    adapter = adapter_of(run, folder)
    damaged(adapter / "adapter_config.json", change)
    refused("score", "--model", tiny_model, "--input", texts, "--adapter", adapter, says=["adapter_config.json", *says],
            untouched=folder)


def without_one(header, data):
    """Removes the last tensor of the data, so that the remaining data has no hole."""
    last = max(header, key=lambda name: header[name]["data_offsets"][1] if name != "__metadata__" else -1)
    begin = header.pop(last)["data_offsets"][0]
    return header, bytes(data[:begin])


def named(name):
    return lambda _: safetensors({name: tensor()}, bytes(24))


ADAPTER_WEIGHTS = [
    ("missing", None, []),
    ("empty", lambda _: b"", ["0 bytes"]),
    ("cut", lambda old: old[:len(old) // 2], ["truncated"]),
    ("no tensors", lambda _: safetensors({}), ["no adapter"]),
    ("a factor missing", repacked(without_one), ["missing"]),
    ("another tensor", named("x"), ["unexpected", "x"]),
    ("a module that the model lacks", named("base_model.model.model.layers.9.mlp.gate.lora_A.weight"), ["layers.9", "lacks"]),
    ("another shape", named("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), ["[2, 3]", "[3, 32]"]),
    ("a NaN", overwritten(b"\x00\x00\xc0\x7f"), ["not finite"]),
]


@pytest.mark.parametrize("change, says", cases(ADAPTER_WEIGHTS))
def test_damaged_adapter_weights_are_rejected(run, tiny_model, texts, folder, change, says):
    file = adapter_of(run, folder) / "adapter_model.safetensors"
    file.unlink() if change is None else file.write_bytes(change(file.read_bytes()))
    refused("score", "--model", tiny_model, "--input", texts, "--adapter", file.parent,
            says=["adapter_model.safetensors", *says], untouched=folder)


# --- TOML ---

TOML = [
    ("a table that is open", "[train\nrounds = 3\n", ["line 1"]),
    ("two equal signs", "rounds = = 3\n", ["line 1"]),
    ("a key twice", "seed = 3\nseed = 4\n", ["line 2"]),
    ("a table twice", "[train]\n[lora]\n[train]\n", ["line 3"]),
    ("a string that is open", 'name = "a\n', ["line 1"]),
    ("a number too large", "seed = 99999999999999999999\n", ["line 1"]),
    ("not UTF-8", b'name = "\xff"\n', ["line 1"]),
    ("a NUL", b'name = "a"\0\n', ["line 1"]),
    ("an escape that there is not", 'name = "\\q"\n', ["line 1"]),
    ("a date", "name = 1979-05-27\n", ["name", "a string", "line 1"]),
    ("JSON", '{"seed": 3}\n', ["line 1"]),
    ("deep lists", "seed = " + "[" * DEEP + "\n", []),
    ("deep tables", "seed = " + "{a=" * DEEP + "\n", []),
    ("a key of 100,000 parts", "a." * DEEP + "b = 1\n", []),
    ("a table of 100,000 parts", "[" + "a." * DEEP + "b]\n", []),
    ("another key", "[train]\nrouns = 3\n", ["train.rouns", "line 2", "rounds"]),
    ("another table", "[trian]\nrounds = 3\n", ["trian", "train"]),
    ("a section that is a value", "train = 3\n", ["train", "a table", "line 1"]),
    ("a list of sections", "[[train]]\nrounds = 3\n", ["train", "a table"]),
    ("a key with a newline", '"a\\nevenkeel: b" = 3\n', ["not a known key"]),
    ("a key of 10,000 letters", f"{'x' * 10_000} = 3\n", ["not a known key"]),
]


@pytest.mark.parametrize("text, says", cases(TOML))
def test_an_invalid_config_file_is_rejected(folder, text, says):
    (folder / "bad.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    refused("train", folder / "bad.toml", "--out", folder / "run", says=["[config]", "bad.toml", *says], untouched=folder)
