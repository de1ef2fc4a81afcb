"""Compares UB-SMoE's routing, gates and their gradients with numpy: on random scores, and inside a whole OLMoE in
float64.
"""
import json
import pathlib
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from jobs import answer  # noqa: E402
from peer import random_model  # noqa: E402
from reference import olmoe, ub_smoe  # noqa: E402

READINGS = [{"dmr_mode": "candidate"}, {"dmr_mode": "candidate", "num_candidates": 0},
            {"dmr_mode": "candidate", "num_candidates": 5}, {"dmr_mode": "candidate_wide", "num_candidates": 6},
            {"dmr_mode": "preserve"}, {"dmr_mode": "preserve", "num_candidates": 0},
            {"dmr_mode": "candidate", "num_candidates": 5, "gate_scores": "raw"},
            {"dmr_mode": "preserve", "num_candidates": 1, "gate_scores": "raw"}]
GATES = ["renorm_selected", "olmoe_native"]


def toml_of(options):
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items() if key != "gate_norm")


def run(folder, options, top_k, phi, upstream, dtype=np.float64, **job):
    save_file({f"{layer}.phi": value.astype(np.float32) for layer, value in phi.items()}, folder / "phi.safetensors")
    save_file({name: value.astype(dtype) for name, value in upstream.items()}, folder / "upstream.safetensors")
    return answer("routing_step", folder, {
        "options": toml_of(options), "gate_norm": options["gate_norm"], "top_k": top_k, "phi": str(folder / "phi.safetensors"),
        "upstream": str(folder / "upstream.safetensors"), **job})


def exact(values):
    """Rounds to float32, the precision in which phi is sent."""
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("dtype,tolerance", [(np.float64, 1e-12), (np.float32, 2e-6)], ids=["float64", "float32"])
@pytest.mark.parametrize("gate_norm", GATES)
@pytest.mark.parametrize("reading", READINGS, ids=lambda r: "-".join(map(str, r.values())))
def test_selection_gates_and_gradients_of_random_scores_equal_the_reference(tmp_path, reading, gate_norm, dtype, tolerance):
    draw, options = np.random.default_rng(5), {**reading, "gate_norm": gate_norm}
    scores, phi = draw.standard_normal((41, 9)).astype(dtype), exact(draw.standard_normal(9))
    scores[:3] = 0.0  # ties
    save_file({"scores": scores}, tmp_path / "scores.safetensors")
    upstream = draw.standard_normal(scores.shape)
    free = reading == {"dmr_mode": "preserve", "num_candidates": 0}  # with phi on every expert, all are candidates
    theirs = {"dmr_mode": "candidate", "num_candidates": 9, "gate_norm": gate_norm} if free else options
    for top_k in (1, 2, 4, 9):
        out = run(tmp_path, options, top_k, {"moe": phi}, {"weights": upstream}, dtype,
                  scores=str(tmp_path / "scores.safetensors"))
        selected, gates, m = ub_smoe.route(scores.astype(np.float64), top_k, phi, theirs)
        assert (np.sort(out["experts"]) == np.sort(selected)).all()
        assert np.abs(out["weights"] - np.take_along_axis(gates, out["experts"], axis=1)).max() <= tolerance
        gradient = ub_smoe.gate_gradient(m, selected, upstream, theirs)
        assert np.abs(out["scores_grad"] - gradient).max() <= tolerance
        modulated = m != scores
        if modulated.any() or "gate_scores" in reading:  # raw gates: no gradient
            assert np.abs(out["phi_grad"] - (gradient * modulated).sum(axis=0)).max() <= 41 * max(tolerance, 1e-7)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Returns (folder, weights, config) of two layers of 7 experts in float64. No two widths are equal."""
    folder = tmp_path_factory.mktemp("model")
    peer = random_model(seed=29, num_experts=7, num_experts_per_tok=3, num_attention_heads=6, num_key_value_heads=3,
                        hidden_size=24, intermediate_size=10, vocab_size=43, num_hidden_layers=2, norm_topk_prob=False)
    peer.double().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config.setdefault("rope_theta", 10000.0)
    return folder, load_file(folder / "model.safetensors"), config, peer


IDS = np.random.default_rng(31).integers(0, 43, 19)


def test_the_reference_forward_equals_transformers(model):
    _, weights, config, peer = model
    ours, _ = olmoe.logits(IDS, weights, config, 3, None, {"gate_norm": "olmoe_native"})
    with torch.no_grad():
        theirs = peer(torch.tensor(IDS)[None]).logits[0].numpy()
    assert np.abs(ours - theirs).max() <= 1e-6 * np.abs(theirs).max()


@pytest.mark.parametrize("gate_norm", GATES)
@pytest.mark.parametrize("reading", [{"dmr_mode": "candidate"}, {"dmr_mode": "preserve", "num_candidates": 1},
                                     {"dmr_mode": "candidate_wide", "num_candidates": 4},
                                     {"dmr_mode": "candidate", "num_candidates": 0},
                                     {"dmr_mode": "candidate", "num_candidates": 4, "gate_scores": "raw"}],
                         ids=lambda r: "-".join(map(str, r.values())))
@pytest.mark.parametrize("top_k", [1, 3, 5])
def test_a_whole_model_with_modulated_routing_equals_the_reference(tmp_path, model, reading, gate_norm, top_k):
    folder, weights, config, _ = model
    draw, options = np.random.default_rng(37), {**reading, "gate_norm": gate_norm}
    layers = [f"model.layers.{i}.mlp" for i in range(2)]
    phi = {layer: exact(draw.standard_normal(7)) for layer in layers}
    upstream = draw.standard_normal((len(IDS), 43)) / len(IDS)
    out = run(tmp_path, options, top_k, phi, {"logits": upstream}, model=str(folder), ids=IDS.tolist())
    expected, counts = olmoe.logits(IDS, weights, config, top_k, phi, options)
    assert np.abs(out["logits"] - expected).max() <= 1e-6 * np.abs(expected).max()
    for layer in layers:
        np.testing.assert_array_equal(out[f"counts/{layer}"], counts[layer])
    plain, _ = olmoe.logits(IDS, weights, config, top_k, None, options)
    # The raw best expert, with weight 1
    kept = reading["dmr_mode"] == "preserve" and top_k == 1 and gate_norm == "renorm_selected"
    modulates = reading.get("num_candidates") != 0 and not kept
    assert (np.abs(plain - expected).max() > 1e-3) == modulates, "phi makes no difference here"
    for layer in layers if modulates else []:
        for expert in range(7):
            value = []
            for step in (1e-6, -1e-6):
                moved = {**phi, layer: phi[layer] + step * np.eye(7)[expert]}
                value.append((olmoe.logits(IDS, weights, config, top_k, moved, options)[0] * upstream).sum())
            slope = (value[0] - value[1]) / 2e-6
            assert abs(out[f"phi_grad/{layer}"][expert] - slope) <= 2e-5 * max(1.0, abs(slope))
