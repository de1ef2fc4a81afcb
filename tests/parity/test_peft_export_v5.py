"""Loads both layouts of an adapter, and the merged checkpoint, with transformers 5 + PEFT 0.21."""
import pytest
from peft import PeftModel

from federated_run import federated_run, gate_flags
from peer import assert_logits_close, load_float32, run, score, texts_with_logits


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return federated_run(tmp_path_factory.mktemp("fused"), "ub-smoe")


@pytest.mark.parametrize("layout", ["peft", "peft-fused"])
def test_exported_adapter_opens_in_peft_with_our_logits(trained, layout, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", layout, "--out", tmp_path / "adapter")
    peer = PeftModel.from_pretrained(load_float32(model_folder), tmp_path / "adapter").eval()
    texts, expected = texts_with_logits(peer, (1, 70, 12), seed=89)
    _, logits = score(model_folder, texts, tmp_path, "--adapter", run_folder / "adapter")
    assert_logits_close(logits, expected)


def test_merged_export_opens_in_transformers_5_with_our_logits(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "merged", "--out", tmp_path / "merged")
    texts, expected = texts_with_logits(load_float32(tmp_path / "merged"), (1, 70, 12), seed=97)
    _, logits = score(model_folder, texts, tmp_path, "--adapter", run_folder / "adapter", *gate_flags(run_folder))
    assert_logits_close(logits, expected)
