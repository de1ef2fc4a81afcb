"""Compares Llama, Mistral, Qwen2, Qwen3, Granite, OLMo 2, Gemma 2, Gemma 3 and Phi-3 with the installed version of
transformers and PEFT.
"""
import json

import pytest
import torch
from peft import PeftModel

from dense_families import ALL, FAMILIES, TARGETS, TRAINED, model_at
from federated_run import federated_run
from peer import assert_logits_close, assert_scores_equal, load_float32, random_model, run, score, texts_with_logits
from training_peer import assert_twenty_steps_agree

LENGTHS = (1, 2, 200, 17, 64)
LEARNS = {"gemma2": 0.9}  # its caps slow a random model down


@pytest.mark.parametrize("family, index", ALL)
def test_logits_and_logprobs_equal_transformers_for_texts_of_many_lengths(family, index, tmp_path):
    assert_scores_equal(model_at(family, index), LENGTHS, 500 + index, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sharded_checkpoint_of_half_precision_equals_transformers(family, tmp_path):
    model_at(family, 6).to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="20KB")
    model_at.cache_clear()
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 2
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (3, 50), seed=19)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--dtype", "float32")
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_initialised_checkpoint_opens_in_transformers_with_our_logits(family, tmp_path):
    model_at(family, 3).config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"initializer_range": 0.2}))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model")
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 20, 77), seed=43)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_twenty_steps_of_adamw_follow_transformers_and_peft(family, tmp_path):
    assert_twenty_steps_agree(random_model(seed=51, vocab_size=79, **TRAINED[family]), TARGETS[family], tmp_path, seed=53, learns=LEARNS.get(family, 0.8))


def short_run(folder, family, *settings):
    """Returns (model folder, run folder) of a short run of a rank method."""
    return federated_run(folder, "flexlora", f"lora.targets={json.dumps(TARGETS[family])}", *settings, model=TRAINED[family])


def losses_of(run_folder):
    rounds = [json.loads(line) for line in (run_folder / "rounds.jsonl").read_text().splitlines()]
    return torch.tensor([client["loss"] for record in rounds for client in record["clients"]])


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request, tmp_path_factory):
    return short_run(tmp_path_factory.mktemp(request.param), request.param)


def test_a_federated_run_gives_each_client_its_own_rank(trained):
    _, run_folder = trained
    rounds = [json.loads(line) for line in (run_folder / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in rounds] == [1, 2]
    assert len({client["rank"] for record in rounds for client in record["clients"]}) > 1


@pytest.mark.parametrize("setting, apart", [('model.base_format="int8"', 1e-2), ('model.engine="aten"', 1e-3)])
def test_an_int8_base_and_the_other_engine_have_nearly_the_same_losses(trained, setting, apart, request, tmp_path):
    expected, given = losses_of(trained[1]), losses_of(short_run(tmp_path, request.node.callspec.params["trained"], setting)[1])
    assert given.shape == expected.shape and ((given - expected).abs() < apart * expected).all()
    assert "aten" in setting or not given.equal(expected), "the base is not in int8"


def test_an_exported_adapter_opens_in_peft_with_our_logits_and_returns(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "peft", "--out", tmp_path / "peft")
    peer = PeftModel.from_pretrained(load_float32(model_folder), tmp_path / "peft").eval()
    texts, expected = texts_with_logits(peer, (1, 70, 12), seed=89)
    peer.save_pretrained(tmp_path / "again")
    for adapter in (run_folder / "adapter", tmp_path / "peft", tmp_path / "again"):
        _, logits = score(model_folder, texts, tmp_path, "--adapter", adapter)
        assert_logits_close(logits, expected)
    _, bare = score(model_folder, texts, tmp_path)
    assert max((a - b).abs().max() for a, b in zip(bare, expected)) > 1e-3, "the adapter does nothing"


def test_a_merged_checkpoint_opens_in_transformers_with_the_logits_of_base_and_adapter(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "merged", "--out", tmp_path / "merged")
    texts, expected = texts_with_logits(load_float32(tmp_path / "merged"), (1, 70, 12), seed=97)
    for model, flags in ((model_folder, ("--adapter", run_folder / "adapter")), (tmp_path / "merged", ())):
        _, logits = score(model, texts, tmp_path, *flags)
        assert_logits_close(logits, expected)
