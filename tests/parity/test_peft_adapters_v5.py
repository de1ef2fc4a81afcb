"""Compares logits of adapters made by PEFT 0.21 on fused experts, and reads our adapters with PEFT."""
import json

import pytest
from peft import PeftModel
from safetensors.torch import load_file, save_file

from federated_run import federated_run
from peer import assert_logits_close, load_float32, run, score, texts_with_logits
from peft_made import assert_ours_equals_peft

BOTH = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


@pytest.mark.parametrize("settings", [
    dict(r=6, lora_alpha=9, target_modules=["q_proj", "o_proj"], target_parameters=[*BOTH, "mlp.gate.weight"]),
    dict(r=5, lora_alpha=7, target_modules=["v_proj"], target_parameters=["mlp.experts.gate_up_proj"]),
    dict(r=4, lora_alpha=3, target_modules=["v_proj"], target_parameters=["layers.1.mlp.experts.down_proj"], use_rslora=True),
    dict(r=4, lora_alpha=6, target_modules=["k_proj"], target_parameters=[*BOTH, "gate.weight"],
         rank_pattern={r".*\.gate_up_proj": 7, "gate.weight": 2}, alpha_pattern={r"layers\.0\..*down_proj": 11}),
], ids=["one shared rank", "gate and up alone", "down of one layer, rslora", "patterns"])
def test_a_fused_adapter_made_by_peft_has_the_same_logits_here(settings, tmp_path):
    assert_ours_equals_peft(tmp_path, settings)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return federated_run(tmp_path_factory.mktemp("fused"), "fedit")


def test_peft_and_fused_export_keep_the_runs_adapter_bit_for_bit(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "peft-fused", "--out", tmp_path / "ours")
    PeftModel.from_pretrained(load_float32(model_folder), run_folder / "adapter").save_pretrained(tmp_path / "theirs")
    ours, theirs = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("ours", "theirs"))
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in ours)
    lines = tmp_path / "texts.jsonl"
    lines.write_text('{"ids": [3, 7, 20, 9, 41, 5, 8, 30, 2, 17]}\n')
    scores = {run("score", "--model", model_folder, "--adapter", folder, "--input", lines, "--json")
              for folder in (run_folder / "adapter", tmp_path / "ours", tmp_path / "theirs")}
    assert len(scores) == 1


def test_gate_alone_is_rejected_by_peft_and_loads_with_zeros_for_up(trained, tmp_path):
    model_folder, run_folder = trained
    (tmp_path / "gate").mkdir()
    tensors = load_file(run_folder / "adapter/adapter_model.safetensors")
    save_file({name: tensor for name, tensor in tensors.items() if "gate_proj" in name}, tmp_path / "gate/adapter_model.safetensors")
    config = json.loads((run_folder / "adapter/adapter_config.json").read_text())
    (tmp_path / "gate/adapter_config.json").write_text(json.dumps(config | {"target_modules": ["gate_proj"]}))
    with pytest.raises(ValueError, match="without also targeting up_proj"):
        PeftModel.from_pretrained(load_float32(model_folder), tmp_path / "gate")
    run("export", "--model", model_folder, "--adapter", tmp_path / "gate", "--out", tmp_path / "whole")
    peer = PeftModel.from_pretrained(load_float32(model_folder), tmp_path / "whole").eval()
    texts, expected = texts_with_logits(peer, (1, 30), seed=61)
    _, logits = score(model_folder, texts, tmp_path, "--adapter", tmp_path / "gate")
    assert_logits_close(logits, expected)
