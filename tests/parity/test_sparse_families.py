"""Compares the sparse families besides OLMoE with the installed version of transformers."""
import json

import pytest
import torch
from peft import PeftModel

from federated_run import federated_run, gate_flags
from peer import V5, assert_logits_close, assert_scores_equal, load_float32, run, score, texts_with_logits, with_top_k
from sparse_families import ALL, FAMILIES, TRAINED, model_at, run_settings

LENGTHS = (1, 2, 200, 17, 64)


@pytest.mark.parametrize("family, index", ALL)
def test_logits_and_logprobs_equal_transformers_for_texts_of_many_lengths(family, index, tmp_path):
    assert_scores_equal(model_at(family, index), LENGTHS, 300 + index, tmp_path)


@pytest.mark.parametrize("top_k", [1, 2, 4, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_top_k_of_a_call_equals_a_checkpoint_with_that_many_experts_per_token(family, top_k, tmp_path):
    model = model_at(family, 4)
    model.save_pretrained(tmp_path / "model")
    peer = with_top_k(model, top_k, tmp_path / "peer")
    texts, expected = texts_with_logits(peer, (1, 40, 90), seed=13)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--top-k", top_k)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_sharded_checkpoint_of_half_precision_equals_transformers(family, tmp_path):
    model_at(family, 6).to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="60KB")
    model_at.cache_clear()
    assert len(list((tmp_path / "model").glob("model-*.safetensors"))) > 2
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (3, 50), seed=19)
    _, logits = score(tmp_path / "model", texts, tmp_path, "--dtype", "float32")
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("experts", ["original", "fused"])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_initialised_checkpoint_opens_in_transformers_with_our_logits(family, experts, tmp_path):
    if experts == "fused" and not V5:
        pytest.skip("the layout is that of transformers 5")
    model_at(family, 3).config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"initializer_range": 0.2}))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model", "--experts", experts)
    texts, expected = texts_with_logits(load_float32(tmp_path / "model"), (1, 20, 77), seed=43)
    _, logits = score(tmp_path / "model", texts, tmp_path)
    assert_logits_close(logits, expected)


@pytest.mark.parametrize("family", ["deepseek_v3", "glm4_moe"])
def test_what_is_defined_for_a_softmax_is_refused_with_sigmoid_gates(family, tmp_path):
    model_at(family, 0).save_pretrained(tmp_path / "model")
    (tmp_path / "texts.jsonl").write_text('{"ids": [3, 4, 5]}\n')
    for gates in ("olmoe_native", "renorm_selected"):
        run("score", "--model", tmp_path / "model", "--input", tmp_path / "texts.jsonl", "--gate-norm", gates)
    with pytest.raises(AssertionError, match="exited 1.*--gate-norm is softmax_all.*sigmoids"):
        run("score", "--model", tmp_path / "model", "--input", tmp_path / "texts.jsonl", "--gate-norm", "softmax_all")
    with pytest.raises(AssertionError, match="exited 1.*method.gate_norm is softmax_all.*sigmoids"):
        federated_run(tmp_path / "gates", "fedit", "method.gate_norm=softmax_all", model=TRAINED[family])
    with pytest.raises(AssertionError, match="(?s)exited 1.*smoe-llb.*sigmoid"):
        federated_run(tmp_path / "losses", "smoe-llb", model=TRAINED[family])


@pytest.fixture(scope="module", params=FAMILIES)
def trained(request, tmp_path_factory):
    """Returns (family, model folder, run folder) of a short run of UB-SMoE."""
    return request.param, *federated_run(tmp_path_factory.mktemp(request.param), "ub-smoe", *run_settings(request.param),
                                         model=TRAINED[request.param])


def test_a_federated_run_gives_each_client_its_own_number_of_experts(trained):
    _, _, run_folder = trained
    rounds = [json.loads(line) for line in (run_folder / "rounds.jsonl").read_text().splitlines()]
    assert [record["round"] for record in rounds] == [1, 2]
    assert len({client["top_k"] for record in rounds for client in record["clients"]}) > 1
    assert len(rounds[0]["layers"]) == 2


def layouts(family):
    """Returns the layouts of an adapter that PEFT reads for this family."""
    if family == "granitemoe":
        return ["peft-fused"] if V5 else []
    dense = family in ("qwen2_moe", "deepseek_v2", "deepseek_v3", "glm4_moe")  # PEFT 0.21 leaves out dense blocks in the other layout
    return ["peft-fused"] * V5 + ["peft"] * (not V5 or not dense)


def test_an_exported_adapter_opens_in_peft_with_our_logits_and_returns(trained, tmp_path):
    family, model_folder, run_folder = trained
    for layout in layouts(family):
        run("export", "--run", run_folder, "--format", layout, "--out", tmp_path / layout)
        peer = PeftModel.from_pretrained(load_float32(model_folder), tmp_path / layout).eval()
        texts, expected = texts_with_logits(peer, (1, 70, 12), seed=89)
        peer.save_pretrained(tmp_path / f"{layout}-again")
        for adapter in (run_folder / "adapter", tmp_path / layout, tmp_path / f"{layout}-again"):
            _, logits = score(model_folder, texts, tmp_path, "--adapter", adapter)
            assert_logits_close(logits, expected)
        _, bare = score(model_folder, texts, tmp_path)
        assert max((a - b).abs().max() for a, b in zip(bare, expected)) > 1e-3, "the adapter does nothing"


def test_a_merged_checkpoint_opens_in_transformers_with_the_logits_of_base_and_adapter(trained, tmp_path):
    family, model_folder, run_folder = trained
    for experts in ("original", "fused") if V5 else ("original",):
        run("export", "--run", run_folder, "--format", "merged", "--experts", experts, "--out", tmp_path / experts)
        texts, expected = texts_with_logits(load_float32(tmp_path / experts), (1, 70, 12), seed=97)
        for model, flags in ((model_folder, ("--adapter", run_folder / "adapter", *gate_flags(run_folder))), (tmp_path / experts, ())):
            _, logits = score(model, texts, tmp_path, *flags)
            assert_logits_close(logits, expected)
