"""Tests checkpoints with all experts of a layer in one tensor, the layout of transformers 5: its files are read here
and ours are read there.
"""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from peer import assert_logits_close, load_float32, random_model, run, score, texts_with_logits
from sparse_families import TRAINED

OLMOE = dict(num_experts=7, num_experts_per_tok=3, num_attention_heads=4, num_key_value_heads=2, hidden_size=32,
             intermediate_size=20, vocab_size=83, num_hidden_layers=2, norm_topk_prob=False)
MODELS = {"olmoe": OLMOE} | {family: settings | {"vocab_size": 83} for family, settings in TRAINED.items()} | {
    "qwen3_moe, dense layers between": TRAINED["qwen3_moe"] | dict(vocab_size=83, decoder_sparse_step=2, num_hidden_layers=4)}


@pytest.fixture(params=MODELS)
def models(request, tmp_path):
    """Returns a model, and its folders in both layouts."""
    model = random_model(seed=33, **MODELS[request.param])
    model.save_pretrained(tmp_path / "fused", save_original_format=False)
    model.save_pretrained(tmp_path / "original")
    names = load_file(tmp_path / "fused/model.safetensors").keys()
    assert any(name.endswith("experts.gate_up_proj") for name in names), "transformers has another layout"
    return model, tmp_path


def test_a_fused_checkpoint_has_the_logits_of_transformers_and_of_the_original_one(models):
    model, folder = models
    texts, expected = texts_with_logits(model, (1, 60, 9), seed=35)
    _, fused = score(folder / "fused", texts, folder)
    _, original = score(folder / "original", texts, folder)
    assert_logits_close(fused, expected)
    assert all(a.equal(b) for a, b in zip(fused, original))


def test_a_fused_checkpoint_in_shards_and_in_half_precision(models):
    model, folder = models
    model.to(torch.bfloat16).save_pretrained(folder / "shards", save_original_format=False, max_shard_size="30KB")
    assert len(list((folder / "shards").glob("model-*.safetensors"))) > 2
    texts, expected = texts_with_logits(load_float32(folder / "shards"), (1, 60, 9), seed=37)
    _, logits = score(folder / "shards", texts, folder, "--dtype", "float32")
    assert_logits_close(logits, expected)


def zero_adapter(model, folder):
    """Returns an adapter without effect, for a merged export of the unchanged base."""
    folder.mkdir()
    heads = model.model.layers[0].self_attn.o_proj.in_features
    name = "base_model.model.model.layers.0.self_attn.o_proj.lora_"
    save_file({name + "A.weight": torch.ones(1, heads), name + "B.weight": torch.zeros(model.config.hidden_size, 1)},
              folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["o_proj"], "layers_to_transform": [0]}))


@pytest.mark.parametrize("source", ["fused", "original"])
def test_written_checkpoints_in_both_layouts_are_read_bit_for_bit(models, source):
    model, folder = models
    zero_adapter(model, folder / "nothing")
    for layout in ("fused", "original"):
        run("export", "--model", folder / source, "--adapter", folder / "nothing", "--format", "merged", "--experts", layout,
            "--out", folder / f"our-{layout}")
        ours, theirs = (load_file(folder / name / "model.safetensors") for name in (f"our-{layout}", layout))
        assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in theirs)
        again = load_float32(folder / f"our-{layout}")
        assert all(a.equal(b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))


def refusal(folder, work):
    (work / "one.jsonl").write_text('{"ids": [3, 4, 5]}\n')
    with pytest.raises(AssertionError, match="exited 1") as said:
        run("score", "--model", folder, "--input", work / "one.jsonl")
    return str(said.value)


def test_duplicate_or_misshapen_tensors_are_rejected_by_name(tmp_path):
    random_model(seed=33, **OLMOE).save_pretrained(tmp_path / "m", save_original_format=False)
    file = tmp_path / "m/model.safetensors"
    tensors = load_file(file)
    name = "model.layers.1.mlp.experts.gate_up_proj"
    save_file(tensors | {"model.layers.1.mlp.experts.3.up_proj.weight": torch.zeros(20, 32)}, file)
    assert name in refusal(tmp_path / "m", tmp_path)
    save_file(tensors | {name: tensors[name].transpose(1, 2).contiguous()}, file)
    assert name in refusal(tmp_path / "m", tmp_path) and "[7, 40, 32]" in refusal(tmp_path / "m", tmp_path)
    save_file({key: tensor for key, tensor in tensors.items() if key != name}, file)
    assert "model.layers.1.mlp.experts.0.gate_proj" in refusal(tmp_path / "m", tmp_path)
