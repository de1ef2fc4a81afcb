"""Checks settings that are valid alone and invalid together, or with this model or these rows: one line and exit code
1. Values that are invalid alone are in the tables of hostile_*.py.
"""

import os

import pytest

from hostile import refused
from tiny import CONFIG, evenkeel, settings, succeed



@pytest.fixture
def train(tiny_model, tmp_path):
    """Runs the tiny config with changes. Folders that it created must not contain a run afterwards."""
    out = tmp_path / "run"

    def check(*more, says, config=CONFIG, out=out, **changes):
        words = settings(**{"model__path": tiny_model, **changes})
        line = refused("train", config, "--out", out, *words, *more, says=says)
        assert not (out / "manifest.json").exists()
        return line
    return check


# --- the configuration ---

def test_a_missing_config_is_rejected(train, tmp_path):
    train(config=tmp_path / "none.toml", says=["none.toml"])


def test_an_unknown_method_or_task_is_rejected(train):
    train(says=["fedavg", "fedit", "ub-smoe"], method__name='"fedavg"')
    train(says=["arc_x", "arc_c"], evaluate__tasks='["arc_x"]')


def test_a_budget_without_experts_is_rejected(train):
    train(says=["clients.budgets[1]", "0.1", "0.125"], clients__budgets="[1.0, 0.1, 1.0, 1.0, 1.0]")
    train(says=["evaluate.budgets", "0.01"], evaluate__budgets="[1.0, 0.01]")


def test_ranks_that_the_method_does_not_support_are_rejected(train):
    train(says=["clients.ranks", "3, 2, 3", "ub-smoe", "equal ranks"], clients__ranks="[3, 2, 3, 3, 3]")
    train(says=["clients.ranks", "4", "lora.rank"], clients__ranks="[4, 3, 3, 3, 3]")


def test_a_missing_encoder_is_rejected(train, tmp_path):
    train(says=[tmp_path / "nowhere", "not a folder"], evaluate__bert_score__encoder=f'"{tmp_path}/nowhere"')


def test_a_target_that_the_model_lacks_is_rejected(train):
    train(says=["w1"], lora__targets='["q_proj", "w1"]')
    train(says=["lora.targets names gate, the router", "lora.router_lora"], lora__targets='["q_proj", "gate"]')


def test_a_cutoff_beyond_the_models_positions_is_rejected(train):
    train(says=["data.cutoff", "4096", "1024"], data__cutoff=4096)


# --- clients and rows ---

def test_more_clients_than_rows_are_rejected(train):
    train(says=["6", "5"], data__limit=5, clients__count=6, clients__budgets="[]")


def test_an_empty_shard_is_rejected(train):
    train(says=["client"], data__limit=5, clients__count=5,
          data__partition='{ kind = "dirichlet", alpha = 0.001, scheme = "group" }')


def test_a_missing_data_folder_is_rejected(train, tmp_path):
    train(says=[tmp_path / "nowhere"], data__task='"commonsense"', data__path=f'"{tmp_path}/nowhere"')


# --- the model ---

def test_a_missing_model_is_rejected(train, tmp_path):
    train(says=[tmp_path / "nowhere"], model__path=tmp_path / "nowhere")


def test_a_missing_tokenizer_is_rejected(train, model):
    (model / "tokenizer.json").unlink()
    train(says=["[data]", "tokenizer.json"], model__path=model)


def test_a_path_that_is_not_valid_utf8_is_rejected(tmp_path):
    refused("train", CONFIG, "--out", tmp_path / os.fsdecode(b"caf\xe9"), says=["[config] argument 4", "caf\\xe9", "UTF-8"])
    refused("train", CONFIG, "--out", tmp_path / "a\nb", says=["[config]", "output folder", "a\\nb", "control characters"])
    assert not list(tmp_path.iterdir())


# --- the command line ---

@pytest.mark.parametrize("method", ["flora", "florist"])
def test_gradients_of_a_run_without_adapters_are_refused(method, tiny_model, tmp_path):
    """The method moves its update into the base at the end of a round."""
    succeed("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, method__name=method, train__rounds=1, evaluate__limit=1))
    for command in ("gradient-bias", "pg-alignment"):
        refused(command, "--run", tmp_path / "run", "--limit", "1", says=["no adapters after a round"])


def test_gradient_bias_needs_different_runs_of_experts(small_run, tiny_model, tmp_path):
    refused("gradient-bias", "--run", small_run, "--run", f"{small_run}/../{small_run.name}", says=["--run names", "twice"])
    succeed("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, evaluate__budgets="[0.25, 1.0]"))
    refused("gradient-bias", "--run", small_run, "--run", tmp_path / "run", "--limit", "1", says=["the runs differ", "evaluate.budgets"])


def test_pg_alignment_needs_a_run_with_pseudo_gradients(tiny_model, tmp_path):
    refused("pg-alignment", "--run", tmp_path, says=[tmp_path])
    refused("pg-alignment", "--run", tmp_path, "--limit", "0", says=["--limit is 0", "1 or more"])
    refused("pg-alignment", "--run", tmp_path, "--pg-align-mode", "all", says=["--pg-align-mode", "all", "kmax", "dense"])
    done = evenkeel("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, method__name='"fedit"'))
    assert done.returncode == 0, done.stderr
    refused("pg-alignment", "--run", tmp_path / "run", says=["fedit", "no pseudo-gradients"])
    refused("pg-alignment", "--run", tmp_path / "run", "--data", tmp_path, says=["--data", "no evaluated task reads", "builtin:facts"])


