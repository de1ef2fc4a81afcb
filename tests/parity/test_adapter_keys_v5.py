"""Checks that every key of PEFT's LoraConfig, read from the class itself, is either read, rejected, or without effect
here with a reason. Also checks incomplete adapters: PEFT's logits, and a message that names what is missing.
"""
import json
from dataclasses import fields

import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file

from forked import forked
from peer import assert_logits_close, load_float32, random_model, texts_with_logits
from peft_made import OLMOE, assert_ours_equals_peft

ATTENTION = ["q_proj", "o_proj"]
BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
PLAIN = dict(r=3, lora_alpha=5, target_modules=ATTENTION)

# key -> settings that differ from PLAIN in it; saved by PEFT, with the same logits here.
READ = {
    "r": [dict(r=2)], "lora_alpha": [dict(lora_alpha=9)],
    "use_rslora": [dict(use_rslora=True)],
    "target_modules": [dict(target_modules=["layers.1.self_attn.q_proj", "v_proj"]), dict(target_modules=r".*\.1\..*(q|v)_proj"),
                       dict(target_modules="model.layers.0.self_attn.k_proj"), dict(target_modules=["model.layers.1.self_attn.o_proj"])],
    "exclude_modules": [dict(exclude_modules=["layers.0.self_attn.q_proj"]), dict(exclude_modules=r".*0\.self_attn\.o.*"),
                        dict(exclude_modules=["o_proj"])],
    "layers_to_transform": [dict(layers_to_transform=[1]), dict(layers_to_transform=0), dict(layers_to_transform=[0, 1])],
    "layers_pattern": [dict(layers_to_transform=[1], layers_pattern="layers"), dict(layers_to_transform=[0], layers_pattern=["blocks", "layers"]),
                       dict(layers_to_transform=[1], layers_pattern=[])],
    "rank_pattern": [dict(rank_pattern={"q_proj": 5}), dict(rank_pattern={r"layers\.[01]\.self_attn\.o_proj": 1, "o_proj": 4})],
    "alpha_pattern": [dict(alpha_pattern={"o_proj": 1}), dict(alpha_pattern={r"^model.layers.0.*q_proj": 2})],
    "target_parameters": [dict(target_parameters=BOTH), dict(target_parameters=["layers.1.mlp.experts.down_proj"], target_modules=[])],
    "init_lora_weights": [dict(init_lora_weights="eva", eva_config={"rho": 2.0}), dict(init_lora_weights="mica"), dict(init_lora_weights="gaussian")],
}
REFUSED = {
    "peft_type": ["IA3"], "bias": ["all", "lora_only"], "fan_in_fan_out": [True], "use_dora": [True], "use_qalora": [True],
    "lora_bias": [True], "ensure_weight_tying": [True], "modules_to_save": [["lm_head"]], "layer_replication": [[[0, 1]]],
    "trainable_token_indices": [[3]], "loftq_config": [{"loftq_bits": 4}], "eva_config": [2.0, "rho"], "corda_config": [{"verbose": True}],
    "megatron_config": [{"a": 1}], "alora_invocation_tokens": [[3, 4]], "arrow_config": [{"top_k": 2}], "kasa_config": [{"beta": 1.0}],
    "lora_ga_config": [{"direction": "ArBr"}], "monteclora_config": [{"num_samples": 2}], "use_bdlora": [{"nblocks": 2}],
    "velora_config": [{"num_groups": 2}], "init_lora_weights": ["pissa", "pissa_niter_4", "olora", "corda", "loftq", "lora_ga"],
    "r": [0, 2.5, None], "lora_alpha": ["5", None], "rank_pattern": [{"q_proj": -1}, {r"(?i)q_proj": 3}, {r"q\h": 3}],
    "alpha_pattern": [{"q_proj": "x"}, {"q_(proj": 2}], "target_modules": [5, [5], r"(q", r"\Qq_proj\E", "[[:alpha:]]*", r"(*FAIL)", "(?i)Q_PROJ"],
    "exclude_modules": [{"a": 1}, [None]], "layers_to_transform": ["all", [1.5]], "layers_pattern": ["layers", 3],
    "target_parameters": ["mlp.experts.down_proj", [3]], "something_new": [True],
}
NOTE = "a note"
NO_EFFECT = {
    "task_type": ("FEATURE_EXTRACTION", NOTE), "auto_mapping": ({"a": "b"}, NOTE), "peft_version": ("9.9", NOTE),
    "base_model_name_or_path": ("elsewhere", "the base is --model"), "revision": ("main", NOTE), "inference_mode": (False, "of training"),
    "lora_dropout": (0.3, "of training in PEFT; here a run's own setting"), "megatron_core": ("megatron.core", "of Megatron's layers alone"),
    "qalora_group_size": (32, "of QALoRA alone"), "eva_config": ({"rho": 3.0}, "of the first values of factors"),
}
NEVER_SAVED = {"runtime_config": "PEFT takes it out of what it saves"}


def test_every_key_of_lora_config_is_classified():
    known = {field.name for field in fields(LoraConfig)}
    assert not known - (READ.keys() | REFUSED.keys() | NO_EFFECT.keys() | NEVER_SAVED.keys())


@pytest.mark.parametrize("settings", [settings for rows in READ.values() for settings in rows], ids=json.dumps)
def test_supported_keys_have_the_effect_they_have_in_peft(settings, tmp_path):
    assert_ours_equals_peft(tmp_path, PLAIN | settings)
    assert "not whole" not in score(tmp_path, tmp_path / "adapter", [[3, 4]]).stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns a model, and an adapter on attention and experts as PEFT saves it."""
    folder = tmp_path_factory.mktemp("made")
    assert_ours_equals_peft(folder, PLAIN | dict(target_parameters=BOTH))
    return folder


def adapter(folder, made, changes={}, keep=lambda name: True):
    """Copies the adapter with a changed config and some of its tensors."""
    folder.mkdir()
    tensors = load_file(made / "adapter/adapter_model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if keep(name)}, folder / "adapter_model.safetensors")
    config = json.loads((made / "adapter/adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | changes))
    return folder


def score(made, folder, texts):
    (folder / "texts.jsonl").write_text("".join(json.dumps({"ids": ids}) + "\n" for ids in texts))
    return forked("score", "--model", made / "model", "--adapter", folder, "--input", folder / "texts.jsonl", "--threads", 1,
                  "--logits", folder / "logits.safetensors")


def logits_of(folder, texts):
    tensors = load_file(folder / "logits.safetensors")
    return [tensors[str(i)].float() for i in range(len(texts))]


@pytest.mark.parametrize("key, value", [(key, value) for key, values in REFUSED.items() for value in values])
def test_unsupported_keys_are_rejected_by_name(key, value, made, tmp_path):
    done = score(made, adapter(tmp_path / "a", made, {key: value}), [[3, 4]])
    assert done.returncode == 1 and key in done.stderr and "adapter_config.json" in done.stderr, done.stderr


def test_a_regular_expression_excludes_a_selection_of_layers_as_in_peft(made, tmp_path):
    done = score(made, adapter(tmp_path / "a", made, {"target_modules": ".*[qo]_proj", "layers_to_transform": [0, 1]}), [[3, 4]])
    assert done.returncode == 1 and "layers_to_transform" in done.stderr


def test_keys_without_effect_do_not_change_logits(made, tmp_path):
    changed = adapter(tmp_path / "a", made, {key: value for key, (value, why) in NO_EFFECT.items() if why})
    same = adapter(tmp_path / "b", made)
    texts = [[3, 7, 20, 9, 41]]
    assert score(made, changed, texts).returncode == score(made, same, texts).returncode == 0
    assert logits_of(changed, texts)[0].equal(logits_of(same, texts)[0])


@pytest.mark.parametrize("key", ["fan_in_fan_out", "use_dora", "use_qalora", "use_rslora", "lora_bias", "ensure_weight_tying", "inference_mode",
                                 "init_lora_weights"])
def test_a_flag_of_null_is_false_as_in_peft(key, made, tmp_path):
    folder = adapter(tmp_path / "a", made, {key: None})
    texts, expected = texts_with_logits(PeftModel.from_pretrained(load_float32(made / "model"), folder).eval(), (1, 30, 9), seed=53)
    done = score(made, folder, texts)
    assert done.returncode == 0, done.stderr
    assert_logits_close(logits_of(folder, texts), expected, tolerance=3e-4)


PARTS = {
    "half of the layers": (lambda name: ".layers.0." in name, "layers.1"),
    "one module of one layer": (lambda name: "layers.1.self_attn.o_proj" not in name, "layers.1.self_attn.o_proj"),
    "attention without experts": (lambda name: ".experts." not in name, "layers.0.mlp.experts"),
    "experts of one layer": (lambda name: "layers.0.mlp" not in name, "layers.0.mlp.experts"),
}


@pytest.mark.parametrize("part", PARTS)
def test_an_incomplete_adapter_acts_as_in_peft_and_is_reported(part, made, tmp_path):
    keep, missing = PARTS[part]
    folder = adapter(tmp_path / "a", made, keep=keep)
    with pytest.warns(UserWarning, match="missing adapter keys"):
        peer = PeftModel.from_pretrained(load_float32(made / "model"), folder).eval()
    texts, expected = texts_with_logits(peer, (1, 60, 9), seed=53)
    done = score(made, folder, texts)
    assert done.returncode == 0, done.stderr
    assert_logits_close(logits_of(folder, texts), expected, tolerance=3e-4)
    said = [line for line in done.stderr.splitlines() if "is not whole" in line]
    assert len(said) == 1 and missing in said[0], done.stderr


@pytest.mark.parametrize("changes", [{"layers_to_transform": [0]}, {"exclude_modules": ["o_proj"]}, {"target_modules": ["q_proj"]},
                                     {"target_modules": r".*layers\.0.*"}], ids=json.dumps)
def test_factors_that_peft_would_ignore_are_rejected(changes, made, tmp_path):
    done = score(made, adapter(tmp_path / "a", made, changes), [[3, 4]])
    assert done.returncode == 1 and "leave out" in done.stderr and "self_attn" in done.stderr, done.stderr


def test_a_single_factor_is_rejected(made, tmp_path):
    folder = adapter(tmp_path / "a", made, keep=lambda name: not ("layers.1.self_attn.q_proj" in name and "lora_B" in name))
    done = score(made, folder, [[3, 4]])
    assert done.returncode == 1 and "layers.1.self_attn.q_proj.lora_B" in done.stderr


def test_an_adapter_on_some_experts_is_complete_if_its_targets_are(tmp_path):
    """The adapter is as PEFT 0.17 saves it, with one module per expert: the first experts of two projections."""
    model = random_model(seed=51, **OLMOE)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "a").mkdir()
    names = [f"model.layers.{layer}.mlp.experts.{expert}.down_proj" for layer in range(2) for expert in range(4)]
    generator = torch.Generator().manual_seed(3)
    tensors = {f"base_model.model.{name}.lora_{letter}.weight": torch.randn(shape, generator=generator) * 0.2
               for name in names for letter, shape in (("A", (2, 20)), ("B", (32, 2)))}
    save_file(tensors, tmp_path / "a/adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": r".*experts\.[0-3]\.down_proj"}
    (tmp_path / "a/adapter_config.json").write_text(json.dumps(config))
    with torch.no_grad():
        for layer, block in enumerate(model.model.layers):
            for expert in range(4):
                a, b = (tensors[f"base_model.model.model.layers.{layer}.mlp.experts.{expert}.down_proj.lora_{x}.weight"] for x in "AB")
                block.mlp.experts.down_proj[expert] += 2 * b @ a
    texts, expected = texts_with_logits(model, (1, 40), seed=5)
    done = score(tmp_path, tmp_path / "a", texts)
    assert done.returncode == 0 and "not whole" not in done.stderr, done.stderr
    assert_logits_close(logits_of(tmp_path / "a", texts), expected)
    (tmp_path / "a/adapter_config.json").write_text(json.dumps(config | {"target_modules": r".*experts\.[0-4]\.down_proj"}))
    assert "experts.4.down_proj" in score(tmp_path, tmp_path / "a", texts).stderr
