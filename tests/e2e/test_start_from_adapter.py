"""Tests [lora] init: a run that starts from an adapter has its effect before the first round."""

import json

import pytest

from test_extended import NAMES, SAMPLE, arguments
from tiny import CONFIG, evenkeel, lines, one_line, settings, succeed


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """Returns an adapter of rank 2 whose effect is not small."""
    out = tmp_path_factory.mktemp("start") / "run"
    succeed("train", CONFIG, "--out", out, *arguments(tiny_model, 1, lora__rank=2, train__optimizer__lr="5e-2"))
    return out


def start(model, adapter, method, **changes):
    """Starts a run from the adapter and evaluates it before training."""
    return settings(model__path=model, method__name=method, method__gate_norm="olmoe_native", lora__init=adapter / "adapter",
                    train__rounds=1, data__limit=30, data__task="files", data__partition__kind="iid",
                    data__files__score="nll", data__files__train=f"['{adapter.parent}/rows.jsonl']",
                    data__files__test=f"['{adapter.parent}/rows.jsonl']", evaluate__before="true", evaluate__limit=4,
                    evaluate__budgets="[1.0]", evaluate__rank_eval_modes="['b']", **changes)


@pytest.fixture(scope="module")
def likelihood(tiny_model, adapter):
    """Returns the likelihood of the test rows with the adapter alone."""
    rows = [{"prompt": f"Is {i} even?", "completion": "yes" if i % 2 == 0 else "no"} for i in range(12)]
    (adapter.parent / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["evaluate", "--model", tiny_model, "--tasks", "files", "--data", adapter.parent / "rows.jsonl", "--score", "nll", "--json"]
    alone, bare = (json.loads(succeed(*words, *more).stdout) for more in (["--adapter", adapter / "adapter"], []))
    assert abs(alone["nll"] - bare["nll"]) > 1e-3, "the adapter's effect must be far above the tolerance of the tests"
    return alone["nll"]


@pytest.mark.parametrize("method", [name for name in SAMPLE if name != "fed-sb"])
def test_first_scores_equal_those_of_the_adapter(tiny_model, adapter, likelihood, tmp_path, method):
    """The adapter's rank 2 fits into the run's rank 3. phi is zero before the first round."""
    words = start(tiny_model, adapter, method, evaluate__as_exported="false")
    words = [word.replace("evaluate.limit=4", "evaluate.limit=0") for word in words]
    out = tmp_path / "out"
    succeed("train", CONFIG, "--out", out, *words)
    before, after = (next(one for one in lines(out / "evaluations.jsonl") if one["round"] == r) for r in (0, 1))
    # Some methods cut or stack the factors, which changes the rounding of float32, but no more.
    assert before["nll"] == pytest.approx(likelihood, abs=2e-5)
    assert after["nll"] != before["nll"]
    files = {entry["path"].rsplit("/", 2)[-1] for entry in json.loads((out / "manifest.json").read_text())["files"]
             if entry["path"].startswith(str(adapter))}
    assert files == {"adapter_config.json", "adapter_model.safetensors"}


@pytest.mark.usefixtures("likelihood")  # which writes the rows
def test_a_method_that_initialises_from_gradients_rejects_an_adapter(tiny_model, adapter, tmp_path):
    assert "fed-sb" in NAMES
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", *start(tiny_model, adapter, "fed-sb")), "lora.init",
             "fed-sb", "cannot start from an adapter")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("changes, says", [
    ({"lora__rank": 1, "lora__alpha": 2}, ["rank 2", "up to 1"]),
    ({"lora__targets": "['q_proj']"}, ["lora.init", "lora.targets"]),
    ({"lora__init": "nowhere"}, ["lora.init", "nowhere", "no folder"]),
])
def test_an_adapter_that_does_not_fit_is_rejected_before_anything_is_written(tiny_model, adapter, likelihood, tmp_path, changes, says):
    words = start(tiny_model, adapter, "fedit") + settings(**changes)
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", *words), *says)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", [name for name in NAMES if name not in ("fed-sb", "flora")])
def test_an_adapter_of_a_higher_rank_is_refused_alike_by_methods_that_train_its_factors(tiny_model, adapter, likelihood, method, tmp_path):
    words = start(tiny_model, adapter, method, lora__rank=1, lora__alpha=2)
    words += ["--set", "method.florist.mode=code"] if method == "florist" else []
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", *words),
             "lora.init has rank 2 at model.layers.0.mlp.experts.down_proj, allowed: up to 1, the largest rank of any client")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["flora", "florist"])
def test_an_adapter_of_a_higher_rank_is_a_change_of_the_base_for_methods_that_merge(tiny_model, adapter, likelihood, method, tmp_path):
    words = start(tiny_model, adapter, method, lora__rank=1, lora__alpha=2, evaluate__as_exported="false")
    succeed("train", CONFIG, "--out", tmp_path / "out", *[word.replace("evaluate.limit=4", "evaluate.limit=0") for word in words])
    before = next(one for one in lines(tmp_path / "out/evaluations.jsonl") if one["round"] == 0)
    assert before["nll"] == pytest.approx(likelihood, abs=2e-5)


def test_a_resumed_run_requires_the_same_adapter(tiny_model, adapter, likelihood, tmp_path):
    import shutil
    shutil.copytree(adapter / "adapter", tmp_path / "start")
    words = start(tiny_model, adapter, "fedit") + settings(lora__init=tmp_path / "start")
    succeed("train", CONFIG, "--out", tmp_path / "out", *words)
    file = tmp_path / "start/adapter_config.json"
    file.write_text(file.read_text().replace("\n", "\n "))
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", "--resume", *words), "adapter_config.json", "has changed since")


def test_sites_missing_in_the_adapter_are_initialised_and_counted(tiny_model, adapter, likelihood, tmp_path):
    small = tmp_path / "small"
    succeed("train", CONFIG, "--out", small, *arguments(tiny_model, 1, lora__targets="['q_proj']", lora__router_lora="false"))
    words = start(tiny_model, adapter, "fedit") + settings(lora__init=small / "adapter")
    done = succeed("train", CONFIG, "--out", tmp_path / "out", *words)
    assert done.stderr.count("the others begin with fresh factors") == 1 and " has 2 of the run's " in done.stderr
