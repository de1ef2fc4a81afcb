"""Tests `evenkeel list tables`: the paper's tables, and the state and cost of the studies that fill them."""

import hashlib
import json
import re
import tomllib

import pytest

from hostile import refused
from tiny import ROOT, sealed, succeed

PAPER = ROOT / "configs/paper"
STUDIES = sorted(file.stem for file in PAPER.glob("*.toml") if file.stem not in ("tables", "work"))
TABLES = tomllib.loads((PAPER / "tables.toml").read_text())["table"]


def listed(folder, *words):
    return [json.loads(line) for line in succeed("list", "tables", "--json", *words, cwd=folder).stdout.splitlines()]


def states(folder):
    return {one["study"]: one for table in listed(folder) for one in table["states"]}


def put_study(folder, name, done, failed=0, common=(), base=None, more_arms=(), device="cpu", **changes):
    """Writes the files of a shipped study, of which some runs are done in 100 seconds each."""
    path = PAPER / f"{name}.toml"
    study = tomllib.loads(path.read_text())["study"] | changes
    base = base if base is not None else (path.parent / study["base"]).read_text()
    arms = [{"name": arm["name"], "set": arm["set"]} for arm in [*study["arm"], *more_arms]]
    runs = [{"arm": arm["name"], "seed": seed, "folder": f"{arm['name']}/seed-{seed}", "state": "planned", "config": "0" * 64}
            for seed in study["seeds"] for arm in arms]
    for i in range(done):
        runs[i] |= {"state": "done", "seconds": 100.0}
    for i in range(done, done + failed):
        runs[i] |= {"state": "failed", "error": "[io] no space left", "seconds": 7.0}
    folder.mkdir(parents=True)
    state = {"version": 1, "name": name.rpartition("/")[2], "reference": arms[0]["name"], "endpoint": "accuracy", "seeds": study["seeds"],
             "arms": arms, "set": study.get("set", []), "common": list(common), "free": [], "pinned": ["threads=1", f'model.device="{device}"'],
             "base": hashlib.sha256(base.encode()).hexdigest(), "runs": runs}
    (folder / "study.json").write_text(sealed(state) + "\n")
    (folder / "base.toml").write_text(base)
    return len(runs)


def test_every_table_and_every_study_is_listed_in_80_columns(tmp_path):
    text = succeed("list", "tables", cwd=tmp_path).stdout
    assert max(map(len, text.splitlines())) <= 80
    names = re.findall(r"^paper:(\S+) ", text, re.M)
    assert names == [table["id"] for table in TABLES]
    for study in STUDIES:
        for name in (study, f"small/{study}"):
            row = re.search(rf"^{re.escape(name)} +(\d+) +0 +0 +- +\S+ (days|h|min|s) by FLOPs$", text, re.M)
            assert row, (name, text)
    assert "not here: models/OLMoE-1B-7B-0924, for " in " ".join(text.split()) or (ROOT / "models").exists()


def test_studies_have_the_runs_of_their_files_and_the_work_that_was_counted(tmp_path):
    work = {one["name"]: one["flops"] for one in tomllib.loads((PAPER / "work.toml").read_text())["work"]}
    found = states(tmp_path)
    assert set(found) == set(work) == {*STUDIES, *(f"small/{study}" for study in STUDIES)}
    speeds = {1: [], 2: []}  # by threads of a run
    for name, one in found.items():
        file = PAPER / f"{name}.toml"
        study = tomllib.loads(file.read_text())["study"]
        assert one["runs"] == len(study["arm"]) * len(study["seeds"]) and one["done"] == one["failed"] == one["seconds_taken"] == 0
        assert one["by_flops"] and not one["is_other"] and one["seconds_left"] > one["runs"]
        threads = tomllib.loads((file.parent / study["base"]).read_text())["threads"]
        speeds[threads].append(work[name] / (one["seconds_left"] - one["runs"]))  # a second per run for its start
    for same in speeds.values():
        assert max(same) == pytest.approx(min(same), rel=1e-6) and min(same) > 1e8


def test_what_runs_took_and_the_others_will_take_is_told_from_those_that_are_done(tmp_path):
    runs = put_study(tmp_path / "runs/rho", "rho", done=4, failed=1)
    small = put_study(tmp_path / "runs/paper-small/commonsense", "small/commonsense", done=24)
    found = states(tmp_path)
    assert (found["rho"]["done"], found["rho"]["failed"], found["rho"]["seconds_taken"]) == (4, 1, 400)
    assert found["rho"]["seconds_left"] == pytest.approx(100 * (runs - 4)) and not found["rho"]["by_flops"]
    assert found["small/commonsense"]["done"] == small and found["small/commonsense"]["seconds_left"] == 0
    text = succeed("list", "tables", cwd=tmp_path).stdout
    assert re.search(rf"^rho +{runs} +4 +1 +6:40 min +about 18:20 min$", text, re.M), text
    assert re.search(r"^small/commonsense +24 +24 +0 +40:00 min +-$", text, re.M), text
    rho = next(table for table in listed(tmp_path) if table["table"] == "19")
    assert (rho["runs"], rho["done"], rho["studies"]) == (runs, 4, ["rho"])


def test_speeds_are_those_of_the_arithmetic_and_threads_of_a_study(tmp_path):
    """A study that was begun has its own: here with one thread. The others of full size have two."""
    put_study(tmp_path / "runs/rho", "rho", done=0)
    put_study(tmp_path / "runs/dense", "dense", done=0, device="cuda:9")
    found = states(tmp_path)
    assert found["rho"]["seconds_left"] > 1 and found["dense"]["seconds_left"] is None, "the GPU of the second is not here"
    text = " ".join(succeed("list", "tables", cwd=tmp_path).stdout.split())
    assert re.search(r"[\d.]+ [MGT]FLOP/s \(float32, (2 threads, cpu|cuda:0)\) or [\d.]+ [MGT]FLOP/s \(float32, 1 thread, cpu\)", text), text


ELSEWHERE = ["model.path=allenai/OLMoE-1B-7B-0924", "model.device=cuda", "evaluate.items=true", "data.path=/somewhere/else",
             "train.transport_dtype=bfloat16", "threads=7"]
OLMOE_BASE = (ROOT / "configs/commonsense/olmoe-1b-7b.toml").read_text()
SAME = {"rho": {}, "commonsense": {"common": ELSEWHERE}, "mechanisms": {"common": ["model.path=/mnt/models/OLMoE-1B-7B-0924/"]},
        "phi-range": {"base": "# mine\nseed = 42\n" + OLMOE_BASE}, "small/rho": {"common": ["threads=2", "evaluate.batch_size=8"]}}


def test_a_study_of_the_paper_may_be_elsewhere_on_other_machines(tmp_path):
    """Comments and defaults that are written out make no other study either."""
    for name, changes in SAME.items():
        put_study(tmp_path / ("runs/paper-small/rho" if name == "small/rho" else f"runs/{name}"), name, done=2, **changes)
    found = states(tmp_path)
    assert {name: (found[name]["done"], found[name]["is_other"]) for name in SAME} == {name: (2, False) for name in SAME}


def only_arm(*settings):
    return {"arm": [{"name": "ub-smoe", "set": list(settings)}]}


OTHERS = {"rho": {"base": (PAPER / "small/base.toml").read_text()}, "mechanisms": {"base": "this = is no config\n"},
          "candidates": {"base": '[model]\npath = "builtin:tiny-olmoe"\n'}, "preserved": {"common": ["model.path=builtin:tiny-olmoe"]},
          "phi-range": {"common": ["model.path=models/OLMo-1B-hf"]}, "uniform-32": {"common": ["data.limit=16"]},
          "long-tail-32": {"common": ["train.rounds=1"]}, "reverse-long-tail-32": {"common": ["evaluate.limit=4"]},
          "dense": {"common": ["lora.rank=41", "lora.alpha=41"]}, "homogeneous-k1": only_arm("method.name=ub-smoe", "train.batch_size=2"),
          "commonsense": only_arm("method.name=fedit"), "homogeneous-k2": {"seeds": [1, 2, 3]}}


def test_another_study_in_the_folder_is_named_and_not_counted(tmp_path):
    for name, changes in OTHERS.items():
        put_study(tmp_path / f"runs/{name}", name, done=2, failed=1, **changes)
    found = states(tmp_path)
    for name in OTHERS:
        one = found[name]
        assert one["is_other"] and (one["done"], one["failed"], one["seconds_taken"]) == (0, 0, 0), name
        assert one["by_flops"] and one["seconds_left"] > one["runs"], name
    assert {name for name, one in found.items() if one["is_other"]} == set(OTHERS)
    text = succeed("list", "tables", cwd=tmp_path).stdout
    assert re.search(r"^rho +15 +0 +0 +- +\S+ (days|h) by FLOPs$", text, re.M), text
    assert "runs/rho holds another study than rho: its runs are not counted here\n" in text and max(map(len, text.splitlines())) <= 80


def test_a_small_study_without_out_is_not_taken_for_the_one_of_full_size(tmp_path):
    """Its default folder is runs/rho too."""
    put_study(tmp_path / "runs/rho", "small/rho", done=15)
    found = states(tmp_path)
    assert found["rho"]["is_other"] and found["rho"]["done"] == 0 and found["small/rho"]["done"] == 0
    put_study(tmp_path / "runs/paper-small/rho", "small/rho", done=15)
    assert states(tmp_path)["small/rho"]["done"] == 15


def test_arms_and_seeds_that_the_paper_lacks_are_not_counted(tmp_path):
    put_study(tmp_path / "runs/rho", "rho", done=12, seeds=[42, 7], more_arms=[{"name": "mine", "set": ["method.name=fedit"]}])
    found = states(tmp_path)["rho"]
    assert (found["done"], found["runs"], found["seconds_taken"]) == (5, 15, 500) and not found["is_other"]
    assert found["seconds_left"] == pytest.approx(1000)


def test_an_arm_with_other_settings_is_not_counted(tmp_path):
    """The first arm, none, is another one here; the four others are the paper's."""
    study = tomllib.loads((PAPER / "rho.toml").read_text())["study"]
    put_study(tmp_path / "runs/rho", "rho", done=5, arm=[{"name": "none", "set": ["method.name=fedit"]}, *study["arm"][1:]])
    assert (states(tmp_path)["rho"]["done"], states(tmp_path)["rho"]["is_other"]) == (4, False)


def test_data_and_models_that_are_not_here_are_named(tmp_path, monkeypatch):
    monkeypatch.delenv("EVENKEEL_DATA", raising=False)
    found = states(tmp_path)
    assert found["dense"]["missing"] == ["models/OLMo-1B-hf", "$EVENKEEL_DATA/commonsense"]
    assert found["small/dense"]["missing"] == [] and found["small/telequad-iid"]["missing"] == ["models/small-olmoe", "$EVENKEEL_DATA/telequad"]
    (tmp_path / "models/OLMo-1B-hf").mkdir(parents=True)
    (tmp_path / "models/OLMo-1B-hf/config.json").write_text("{}")
    (tmp_path / "data/commonsense").mkdir(parents=True)
    monkeypatch.setenv("EVENKEEL_DATA", str(tmp_path / "data"))
    assert states(tmp_path)["dense"]["missing"] == []


def test_a_damaged_study_in_the_folder_of_runs_is_named(tmp_path):
    put_study(tmp_path / "runs/rho", "rho", done=1)
    file = tmp_path / "runs/rho/study.json"
    file.write_text(file.read_text().replace("100.0", "1.0"))
    refused("list", "tables", says=["rho/study.json"], cwd=tmp_path)
