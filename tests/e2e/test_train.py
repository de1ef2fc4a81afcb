"""Tests `evenkeel train`: the content of the run folder, and that the same config and seed give the same bits."""

import hashlib
import json
import os
import pathlib
import re
import sys
import tomllib

import numpy as np
import pytest

from tiny import CONFIG, PROGRAM, ROOT, lines, settings, succeed, without_seconds

sys.path.insert(0, str(ROOT / "tests/parity/reference"))
from common import entropy, gini  # noqa: E402


def train(model, out, *more, **changes):
    return succeed("train", CONFIG, "--out", out, *settings(model__path=model, **changes), *more)


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "tiny"
    done = train(tiny_model, out)
    return out, done


def test_the_run_folder_is_complete(run):
    out, _ = run
    names = {entry.name for entry in out.iterdir()} - {"report.html"}
    assert names == {"config.toml", "manifest.json", "partition.json", "rounds.jsonl", "evaluations.jsonl",
                     "checkpoint", "adapter", "log.txt"}
    assert {entry.name for entry in (out / "checkpoint").iterdir()} == {"commit.json", "round-2", "round-3"}
    assert {entry.name for entry in (out / "adapter").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}


def test_the_resolved_config_contains_every_key(run, tiny_model):
    config = tomllib.loads((run[0] / "config.toml").read_text())
    assert config["model"]["path"] == str(tiny_model)
    assert config["threads"] == 1
    assert len(config["evaluate"]["tasks"]) > 1
    assert config["method"]["ub-smoe"]["phi_momentum"] == 0.9


def test_the_kernels_are_chosen_once(tiny_model, tmp_path):
    out = tmp_path / "run"
    train(tiny_model, out, model__compute_dtype="auto", train__rounds=1, evaluate__limit=1)
    chosen = tomllib.loads((out / "config.toml").read_text())["model"]["compute_dtype"]
    assert chosen in ("bfloat16", "float32")
    succeed("train", CONFIG, "--out", out, "--resume")
    assert tomllib.loads((out / "config.toml").read_text())["model"]["compute_dtype"] == chosen


def test_the_manifest_contains_every_file_with_its_fingerprint(run, tiny_model):
    manifest = json.loads((run[0] / "manifest.json").read_text())
    assert {"version", "libraries", "machine", "created", "git"} <= manifest.keys()
    assert re.fullmatch("([0-9a-f]{40}(-dirty)?)?", manifest["git"])
    assert manifest["git"].encode() in pathlib.Path(PROGRAM).read_bytes(), "the commit of the build, not of the checkout"
    by_path = {entry["path"]: entry for entry in manifest["files"]}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        data = (tiny_model / name).read_bytes()
        assert by_path[str(tiny_model / name)]["sha256"] == hashlib.sha256(data).hexdigest()
        assert by_path[str(tiny_model / name)]["bytes"] == len(data)


def test_the_partition_assigns_every_row_to_one_client(run):
    clients = json.loads((run[0] / "partition.json").read_text())["clients"]
    rows = [row for client in clients for row in client]
    assert len(clients) == 5 and all(clients)
    assert len(rows) == len(set(rows)) == 90


def expert_use(u_LE):
    """Computes the measures of a round's use of experts from the use of each expert, u [L, E]."""
    entropies, ginis = [entropy(u_E) for u_E in u_LE], [gini(u_E) for u_E in u_LE]
    used = u_LE[u_LE > 0]
    return {
        "entropy": entropies, "entropy_mean": np.mean(entropies), "entropy_std": np.std(entropies),
        "entropy_joint": entropy(u_LE), "entropy_unnormalized": -(used * np.log(used)).sum(),
        "gini": ginis, "gini_mean": np.mean(ginis), "dead_experts": (u_LE == 0).sum(axis=1).tolist(),
        "nearly_dead_experts": (u_LE < u_LE.mean(axis=1, keepdims=True) / 10).sum(axis=1).tolist(),
    }


def test_round_records_contain_measured_values(run):
    rounds = lines(run[0] / "rounds.jsonl")
    shards = json.loads((run[0] / "partition.json").read_text())["clients"]
    assert [r["round"] for r in rounds] == [1, 2, 3]
    for record in rounds:
        clients = record["clients"]
        assert record["participants"] == len(clients) == 3
        assert [c["id"] for c in clients] == sorted(c["id"] for c in clients)
        assert sum(c["weight"] for c in clients) == pytest.approx(1)
        for client in clients:
            assert client["examples"] == len(shards[client["id"]])
            assert client["steps"] == max(1, round(0.7 * client["examples"] / 4))
            assert client["top_k"] == int(8 * client["budget"])
            assert client["experts_per_token"] == pytest.approx(client["top_k"])
            # Phi and pseudo-gradients are sent to clients, counts to the server
            assert client["bytes_down"] > client["bytes_up"] > 0
            assert client["flops"] > 0 and client["loss"] > 0
        mean_k = sum(c["weight"] * c["top_k"] for c in clients)
        assert [sum(utilization) for utilization in record["utilization"]] == pytest.approx([mean_k, mean_k])
        for name, value in expert_use(np.array(record["utilization"])).items():
            assert record[name] == pytest.approx(value), name
        assert all(0 < value <= 2.4850 for value in record["entropy"])
        assert record["bytes_up"] == sum(c["bytes_up"] for c in clients)
        assert record["gate_norm"] == "renorm_selected"
        assert any(name.endswith(".phi") for name in record["diagnostics"])
    assert len({tuple(c["id"] for c in r["clients"]) for r in rounds}) > 1


def test_evaluations_and_the_table_name_every_task_and_budget(run):
    out, done = run
    scores = lines(out / "evaluations.jsonl")
    tasks = tomllib.loads((out / "config.toml").read_text())["evaluate"]["tasks"]
    assert {(s["task"], s["budget"]) for s in scores} == {(t, b) for t in tasks for b in (0.125, 1.0)}
    for score in scores:
        assert score["rows"] == score["questions"] == 3 and score["round"] == 3
        assert score["top_k"] == int(8 * score["budget"])
        assert 0 <= score["accuracy"] <= 1 and 0 < score["chance"] < 1 and 0 < score["majority"] <= 1
    for task in tasks:
        assert task in done.stdout
    assert "generate --run " in done.stderr


def test_same_config_and_seed_give_the_same_bits(run, tiny_model, tmp_path):
    again = tmp_path / "again"
    train(tiny_model, again)
    name = "adapter/adapter_model.safetensors"
    assert (again / name).read_bytes() == (run[0] / name).read_bytes()
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(again / records)) == without_seconds(lines(run[0] / records))


def test_another_seed_gives_other_bits(run, tiny_model, tmp_path):
    other = tmp_path / "other"
    train(tiny_model, other, seed=6, train__rounds=1)
    assert lines(other / "rounds.jsonl")[0]["loss"] != lines(run[0] / "rounds.jsonl")[0]["loss"]


def test_set_changes_the_method(tiny_model, tmp_path):
    out = tmp_path / "fedit"
    train(tiny_model, out, method__name="fedit", train__rounds=2, evaluate__every=1, evaluate__before="true")
    rounds = lines(out / "rounds.jsonl")
    assert [r["method"] for r in rounds] == ["fedit", "fedit"]
    assert all(r["gate_norm"] == "olmoe_native" for r in rounds)
    assert all(c["bytes_up"] == c["bytes_down"] for r in rounds for c in r["clients"])
    assert {s["round"] for s in lines(out / "evaluations.jsonl")} == {0, 1, 2}


def test_bfloat16_transport_halves_the_bytes(run, tiny_model, tmp_path):
    out = tmp_path / "half"
    train(tiny_model, out, train__transport_dtype="bfloat16", train__rounds=1)
    full, half = (lines(folder / "rounds.jsonl")[0]["bytes_down"] for folder in (run[0], out))
    assert 0.45 * full < half < 0.65 * full


def test_a_run_can_be_evaluated_again(run):
    out, _ = run
    done = succeed("evaluate", "--run", out, "--budget", "1.0", "--json")
    again = {json.loads(line)["task"]: json.loads(line) for line in done.stdout.splitlines()}
    for score in lines(out / "evaluations.jsonl"):
        if score["budget"] == 1.0:
            assert again[score["task"]]["accuracy_likelihood"] == score["accuracy_likelihood"]
            assert again[score["task"]]["accuracy"] == score["accuracy"]


def test_pseudo_gradients_of_a_run_are_compared_with_true_ones(run):
    out, _ = run
    kmax = [json.loads(line) for line in succeed("pg-alignment", "--run", out, "--limit", 1, "--json").stdout.splitlines()]
    dense = [json.loads(line) for line in succeed("pg-alignment", "--run", out, "--limit", 1, "--json", "--pg-align-mode",
                                                  "dense").stdout.splitlines()]
    layers = lines(out / "rounds.jsonl")[-1]["layers"]
    for one in (kmax, dense):
        assert [line["layer"] for line in one] == [*layers, "all"]
        assert all(line["cosine"] is None or -1 <= line["cosine"] <= 1 for line in one)
        assert one[-1]["idle"] == sum(line["idle"] for line in one[:-1])
        for line in one[:-1]:
            assert (line["shuffled_mean"] is not None) == (line["cosine"] is not None and line["compared"] >= 2)
            if line["shuffled_mean"] is not None:
                assert line["shuffled_min"] <= line["shuffled_mean"] <= line["shuffled_max"]
    assert [line["idle"] for line in kmax] == [line["idle"] for line in dense]
    assert all(a["compared"] <= b["compared"] <= b["idle"] for a, b in zip(kmax, dense))
    titles = succeed("pg-alignment", "--run", out, "--limit", 1).stdout.splitlines()[0].split()
    assert titles == ["layer", "idle", "compared", "zero", "cosine", "shuffled", "least", "most"]


def test_published_commonsense_rows_are_trained_and_answered(tiny_model, tmp_path):
    data = pathlib.Path(os.environ.get("EVENKEEL_DATA", "$EVENKEEL_DATA"))
    if not (data / "commonsense").is_dir():
        pytest.skip(f"{data}/commonsense is not there")
    out = tmp_path / "run"
    done = train(tiny_model, out, "--set", "data.partition={kind=\"iid\"}", "--set", "evaluate.budgets=[1.0]",
                 data__task="commonsense", data__path=data / "commonsense", data__limit=40, data__cutoff=900,
                 train__rounds=1, evaluate__limit=1)
    assert "commonsense_15k.json" in done.stderr  # a rebuilt mixture is always reported
    assert len(lines(out / "evaluations.jsonl")) == 8
    paths = [entry["path"] for entry in json.loads((out / "manifest.json").read_text())["files"]]
    assert sum(path.endswith("test.json") for path in paths) == 8
    assert any(path.endswith("commonsense_11k_rebuilt.json") for path in paths) or "15k" in "".join(paths)


def test_the_printed_config_explains_every_key():
    done = succeed("train", CONFIG, "--print-config")
    keys = [line for line in done.stdout.splitlines() if " = " in line and not line.startswith("#")]
    assert len(keys) > 40 and all("#" in line for line in keys)
    tomllib.loads(done.stdout)


def test_help_shows_an_example():
    text = succeed("train", "--help").stdout
    assert "Example: evenkeel train" in text
