"""Tests a dense model from training to export, on the built-in OLMo: rank budgets, and methods that need experts."""
import json

import pytest
from safetensors.numpy import load_file

from tiny import CONFIG, evenkeel, lines, settings, succeed

DENSE = {"model__path": '"builtin:tiny-olmo"', "lora__rank": 40, "lora__alpha": 40, "clients__count": 4,
         "clients__budgets": [0.125, 0.25, 0.5, 1.0], "clients__participation": 1.0, "train__rounds": 2,
         "evaluate__limit": 2}


def train(out, method, **changes):
    return succeed("train", CONFIG, "--out", out, *settings(**DENSE | {"method__name": f'"{method}"'} | changes))


@pytest.mark.parametrize("method", ["hetlora", "flexlora", "flora", "florist"])
def test_rank_methods_train_each_client_at_the_rank_of_its_budget(method, tmp_path):
    train(tmp_path / "run", method)
    rounds = lines(tmp_path / "run" / "rounds.jsonl")
    assert len(rounds) == 2
    assert [client["rank"] for client in rounds[0]["clients"]] == [12, 16, 24, 40]
    assert all(client["top_k"] == 0 and client["experts_per_token"] == 0 for client in rounds[0]["clients"])
    scores = lines(tmp_path / "run" / "evaluations.jsonl")
    # Without experts "all ranks with K_c" is no reading of a budget.
    assert {(score["budget"], score["rank_eval_mode"]) for score in scores} == {(0.125, "a"), (1.0, "a")}


def test_homogeneous_methods_give_all_clients_the_same_rank(tmp_path):
    train(tmp_path / "run", "fedit", train__rounds=1)
    assert {client["rank"] for client in lines(tmp_path / "run" / "rounds.jsonl")[0]["clients"]} == {40}
    config = json.loads((tmp_path / "run/adapter/adapter_config.json").read_text())
    assert set(config["target_modules"]) == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    tensors = load_file(tmp_path / "run/adapter/adapter_model.safetensors")
    assert tensors["base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"].shape == (40, 512)


def test_a_merged_export_of_a_dense_model_has_no_gates_to_write(tmp_path):
    train(tmp_path / "run", "fedit", train__rounds=1, method__gate_norm='"renorm_selected"')
    succeed("export", "--run", tmp_path / "run", "--format", "merged", "--out", tmp_path / "merged")
    assert "norm_topk_prob" not in json.loads((tmp_path / "merged/config.json").read_text())


@pytest.mark.parametrize("method", ["ub-smoe", "a3smoe", "smoe-llb"])
def test_methods_that_need_experts_reject_a_dense_model(method, tmp_path):
    done = evenkeel("train", CONFIG, "--out", tmp_path / "run", *settings(**DENSE | {"method__name": f'"{method}"'}))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and method in done.stderr and "olmo" in done.stderr
    assert not (tmp_path / "run" / "manifest.json").exists()
