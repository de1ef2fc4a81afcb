"""Loads exports of a federated run with transformers 4.57 + PEFT 0.17 and compares logits."""
import pytest
from peft import PeftModel

from federated_run import federated_run, gate_flags
from peer import assert_logits_close, load_float32, run, score, texts_with_logits


@pytest.fixture(scope="module", params=["fedit", "ub-smoe"])
def trained(request, tmp_path_factory):
    return federated_run(tmp_path_factory.mktemp(request.param), request.param)


def peer_with(model_folder, adapter):
    return PeftModel.from_pretrained(load_float32(model_folder), adapter).eval()


def assert_same_logits(peer, model_folder, work, *flags):
    texts, expected = texts_with_logits(peer, (1, 70, 12), seed=83)
    _, logits = score(model_folder, texts, work, *flags)
    assert_logits_close(logits, expected)
    return texts, expected


def test_adapter_of_the_run_opens_in_peft_with_our_logits(trained, tmp_path):
    model_folder, run_folder = trained
    adapter = run_folder / "adapter"
    texts, expected = assert_same_logits(peer_with(model_folder, adapter), model_folder, tmp_path, "--adapter", adapter)
    _, bare = score(model_folder, texts, tmp_path)
    assert max((a - b).abs().max() for a, b in zip(bare, expected)) > 1e-2, "the adapter does nothing"


def test_exported_adapter_opens_in_peft_with_our_logits(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "peft", "--out", tmp_path / "peft")
    peer = peer_with(model_folder, tmp_path / "peft")
    assert_same_logits(peer, model_folder, tmp_path, "--adapter", run_folder / "adapter")


def test_merged_checkpoint_opens_in_transformers_with_the_logits_of_base_and_adapter(trained, tmp_path):
    model_folder, run_folder = trained
    run("export", "--run", run_folder, "--format", "merged", "--out", tmp_path / "merged")
    peer = load_float32(tmp_path / "merged")
    assert_same_logits(peer, model_folder, tmp_path, "--adapter", run_folder / "adapter", *gate_flags(run_folder))
    assert_same_logits(peer, tmp_path / "merged", tmp_path)


def test_adapter_saved_by_peft_opens_here(trained, tmp_path):
    model_folder, run_folder = trained
    peer = peer_with(model_folder, run_folder / "adapter")
    peer.save_pretrained(tmp_path / "resaved")
    assert_same_logits(peer, model_folder, tmp_path, "--adapter", tmp_path / "resaved")
