"""Compares `export --format gguf` with llama.cpp: the `gguf` package reads the adapter file, and llama.cpp computes the
next token of random models with and without the adapter, at any number of experts.
"""
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from peer import run, score

gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
pytest.importorskip("xllamacpp", reason="llama.cpp (xllamacpp) is not installed")
from llama_cpp import CONFIGS, next_logprobs, write_base  # noqa: E402

RANK, ALPHA = 20, 30.0
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
TOLERANCE = 1e-4
# llama.cpp's GELU on processors is a table of 16-bit numbers.
TOLERANCES = {"gemma2": 5e-3, "gemma3_text": 5e-3}
TEXTS = [torch.randint(211, (length,), generator=torch.Generator().manual_seed(length)).tolist() for length in (1, 9, 24, 60)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Creates a random model of each family."""
    folder = tmp_path_factory.mktemp("models")
    for family, config in CONFIGS.items():
        (folder / f"{family}.json").write_text(json.dumps(config))
        run("init", folder / f"{family}.json", "--out", folder / family, "--seed", 7)
    return folder


def modules_of(model, wanted):
    """Returns the checkpoint modules with these last names: name -> [out, in]."""
    weights = load_file(model / "model.safetensors")
    return {name.removesuffix(".weight"): weight.shape for name, weight in weights.items()
            if name.split(".")[-2] in wanted and weight.dim() == 2}


def write_adapter(model, folder, targets, ranks={}, **settings):
    """Writes a random adapter as PEFT saves it, large enough to change the best token. `ranks`: ranks of single
    targets.
    """
    generator = torch.Generator().manual_seed(len(targets))
    tensors = {}
    for name, (rows, columns) in modules_of(model, targets).items():
        rank = ranks.get(name.split(".")[-1], RANK)
        prefix = f"base_model.model.{name}.lora_"
        tensors[prefix + "A.weight"] = torch.randn(rank, columns, generator=generator) * columns**-0.5
        tensors[prefix + "B.weight"] = torch.randn(rows, rank, generator=generator) * 0.05
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": sorted(targets)} | settings))
    return tensors


def converted(model, adapter, out):
    run("export", "--model", model, "--adapter", adapter, "--format", "gguf", "--out", out)
    return out / "adapter.gguf"


def ours(model, work, *flags):
    """Returns log-probabilities [V] of the token after each text."""
    _, logits = score(model, TEXTS, work, *flags)
    return [text[-1].log_softmax(-1) for text in logits]


def assert_alike(theirs, expected, tolerance=TOLERANCE):
    """Checks that the best token is equal and all log-probabilities are within the tolerance."""
    for given, wanted in zip(theirs, expected, strict=True):
        assert given.argmax() == wanted.argmax()
        assert (given - wanted).abs().max() <= tolerance


EXPERTS = ("gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize("targets, settings, top_ks", [
    ((*ATTENTION, "gate", *EXPERTS), {}, (8, 4, 2, 1)),
    (("down_proj",), {}, (8, 1)),
    (ATTENTION, {}, (1,)),
    (("gate", *EXPERTS), {"use_rslora": True}, (2, 1)),
    ((*ATTENTION, *EXPERTS), {"ranks": {"q_proj": 3, "down_proj": 7}, "rank_pattern": {"q_proj": 3, "down_proj": 7},
                              "alpha_pattern": {"q_proj": 5.0}}, (2, 1)),
], ids=["everything", "down", "attention", "rslora", "unequal-ranks"])
def test_an_olmoe_adapter_has_equal_logits_at_every_number_of_experts(models, targets, settings, top_ks, tmp_path):
    model = models / "olmoe"
    write_adapter(model, tmp_path / "peft", targets, **settings)
    adapter = converted(model, tmp_path / "peft", tmp_path / "gguf")
    for top_k in top_ks:
        base = write_base(model, tmp_path / f"{top_k}.gguf", top_k)
        flags = ("--top-k", top_k, "--adapter", tmp_path / "peft")
        assert_alike(next_logprobs(base, adapter, TEXTS), ours(model, tmp_path, *flags))
    bare, adapted = (ours(model, tmp_path, "--top-k", 1, *f) for f in ((), flags[2:]))
    assert max((a - b).abs().max() for a, b in zip(bare, adapted)) > 0.2, "the adapter does nothing"


@pytest.mark.parametrize("targets", [ATTENTION, EXPERTS, ("k_proj",)],
                         ids=["attention", "dense", "k"])
def test_an_olmo_adapter_has_equal_logits(models, targets, tmp_path):
    model = models / "olmo"
    write_adapter(model, tmp_path / "peft", targets)
    adapter = converted(model, tmp_path / "peft", tmp_path / "gguf")
    base = write_base(model, tmp_path / "base.gguf")
    expected = ours(model, tmp_path, "--adapter", tmp_path / "peft")
    assert_alike(next_logprobs(base, adapter, TEXTS), expected)
    assert max((a - b).abs().max() for a, b in zip(ours(model, tmp_path), expected)) > 0.2


SPARSE = ("qwen2_moe", "qwen3_moe", "mixtral", "glm4_moe")
EXPERT_NAMES = {"mixtral": ("w1", "w3", "w2")}
FUSED = {"phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")}


@pytest.mark.parametrize("family", sorted(set(CONFIGS) - {"olmoe", "olmo"}))
def test_an_adapter_of_another_family_has_equal_logits(models, family, tmp_path):
    model = models / family
    targets = FUSED.get(family) or (*ATTENTION, *(("gate",) if family in SPARSE else ()), *EXPERT_NAMES.get(family, EXPERTS))
    write_adapter(model, tmp_path / "peft", targets)
    adapter = converted(model, tmp_path / "peft", tmp_path / "gguf")
    base = write_base(model, tmp_path / "base.gguf")
    expected = ours(model, tmp_path, "--adapter", tmp_path / "peft")
    assert_alike(next_logprobs(base, adapter, TEXTS), expected, TOLERANCES.get(family, TOLERANCE))
    assert max((a - b).abs().max() for a, b in zip(ours(model, tmp_path), expected)) > 0.02, "the adapter does nothing"


@pytest.mark.parametrize("family, renormalised, gates", [
    ("olmoe", True, "softmax_all"), ("olmoe", False, "softmax_all"), ("qwen2_moe", True, "softmax_all"), ("qwen2_moe", False, "softmax_all"),
    ("qwen3_moe", True, "renorm_selected"), ("qwen3_moe", False, "renorm_selected"), ("glm4_moe", False, "olmoe_native")])
def test_llama_cpp_has_the_gates_that_the_family_says(models, family, renormalised, gates, tmp_path):
    """Of scores as served (docs/serving.md): which key llama.cpp reads, and which it ignores."""
    config = json.loads((models / f"{family}.json").read_text()) | {"norm_topk_prob": renormalised, "initializer_range": 0.1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model")
    expected = ours(tmp_path / "model", tmp_path, "--gate-norm", gates)
    assert_alike(next_logprobs(write_base(tmp_path / "model", tmp_path / "base.gguf"), None, TEXTS), expected)
    other = ours(tmp_path / "model", tmp_path, "--gate-norm", "softmax_all" if gates == "renorm_selected" else "renorm_selected")
    assert max((a - b).abs().max() for a, b in zip(expected, other)) > 100 * TOLERANCE, "other gates give the same"


@pytest.mark.parametrize("family, change", [
    ("qwen3_moe", {"decoder_sparse_step": 2}), ("qwen3_moe", {"norm_topk_prob": False}), ("qwen2_moe", {"mlp_only_layers": [1]}), ("glm4_moe", {"n_group": 4, "topk_group": 3}),
    ("olmoe", {"clip_qkv": 8.0}), ("llama", {"hidden_act": "gelu"}), ("gemma3_text", {"query_pre_attn_scalar": 64}),
    ("phi3", {"sliding_window": 64}), ("qwen3", {"attention_bias": True})])
def test_sites_unknown_to_llama_cpp_are_rejected_by_name(models, family, change, tmp_path):
    config = json.loads((models / f"{family}.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    run("init", tmp_path / "config.json", "--out", tmp_path / "model")
    write_adapter(tmp_path / "model", tmp_path / "peft", ("o_proj",))
    with pytest.raises(AssertionError, match=f"exited 1.*{family}"):
        converted(tmp_path / "model", tmp_path / "peft", tmp_path / "gguf")
    assert not (tmp_path / "gguf").exists()


def test_the_file_has_the_required_keys_and_tensors(models, tmp_path):
    model = models / "olmoe"
    saved = write_adapter(model, tmp_path / "peft", ("q_proj", "gate", "up_proj"))
    reader = gguf.GGUFReader(converted(model, tmp_path / "peft", tmp_path / "gguf"))
    assert reader.fields["GGUF.version"].contents() == 3 and reader.alignment == 32
    assert {name: reader.fields[name].contents() for name in reader.fields if not name.startswith("GGUF.")} == {
        "general.architecture": "olmoe", "general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": ALPHA}
    tensors = {tensor.name: torch.from_numpy(tensor.data.copy()) for tensor in reader.tensors}
    assert sorted(tensors) == sorted(f"blk.{layer}.{name}.weight.lora_{factor}" for layer in range(3) for factor in "ab"
                                     for name in ("attn_q", "ffn_gate_inp", "ffn_up_exps"))
    for letter, factor in (("a", "A"), ("b", "B")):
        names = {"attn_q": "self_attn.q_proj", "ffn_gate_inp": "mlp.gate"}
        for ours_, theirs in names.items():
            wanted = saved[f"base_model.model.model.layers.2.{theirs}.lora_{factor}.weight"]
            assert tensors[f"blk.2.{ours_}.weight.lora_{letter}"].equal(wanted)
        experts = torch.stack([saved[f"base_model.model.model.layers.1.mlp.experts.{e}.up_proj.lora_{factor}.weight"]
                               for e in range(16)])
        assert tensors[f"blk.1.ffn_up_exps.weight.lora_{letter}"].equal(experts)
