"""Tests `evenkeel list tables`: the paper's tables, and the state and cost of the studies that fill them."""

import json
import re
import time
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


def put_study(folder, name, done, failed=0):
    """Writes study.json of a shipped study, of which some runs are done in 100 seconds each."""
    file = tomllib.loads((PAPER / f"{name}.toml").read_text())
    study = file["study"]
    arms = [{"name": arm["name"], "set": arm["set"]} for arm in study["arm"]]
    runs = [{"arm": arm["name"], "seed": seed, "folder": f"{arm['name']}/seed-{seed}", "state": "planned", "config": "0" * 64}
            for seed in study["seeds"] for arm in arms]
    for i in range(done):
        runs[i] |= {"state": "done", "seconds": 100.0}
    for i in range(done, done + failed):
        runs[i] |= {"state": "failed", "error": "[io] no space left", "seconds": 7.0}
    folder.mkdir(parents=True)
    state = {"version": 1, "name": name.rpartition("/")[2], "reference": arms[0]["name"], "endpoint": "accuracy", "seeds": study["seeds"],
             "arms": arms, "common": [], "free": [], "pinned": [], "runs": runs}
    (folder / "study.json").write_text(sealed(state) + "\n")
    return len(runs)


def test_every_table_and_every_study_is_listed_in_80_columns(tmp_path):
    start = time.monotonic()
    text = succeed("list", "tables", cwd=tmp_path).stdout
    assert time.monotonic() - start < 20, "it loads no weights and trains nothing"
    assert max(map(len, text.splitlines())) <= 80
    names = re.findall(r"^paper:(\S+) ", text, re.M)
    assert names == [table["id"] for table in TABLES]
    for study in STUDIES:
        for name in (study, f"small/{study}"):
            row = re.search(rf"^{re.escape(name)} +(\d+) +0 +0 +- +at least \S+ (days|h|min|s)$", text, re.M)
            assert row, (name, text)
    assert "not here: models/OLMoE-1B-7B-0924, for " in " ".join(text.split()) or (ROOT / "models").exists()


def test_studies_have_the_runs_of_their_files_and_the_work_that_was_counted(tmp_path):
    work = {one["name"]: one["flops"] for one in tomllib.loads((PAPER / "work.toml").read_text())["work"]}
    found = states(tmp_path)
    assert set(found) == set(work) == {*STUDIES, *(f"small/{study}" for study in STUDIES)}
    speeds = []
    for name, one in found.items():
        study = tomllib.loads((PAPER / f"{name}.toml").read_text())["study"]
        assert one["runs"] == len(study["arm"]) * len(study["seeds"]) and one["done"] == one["failed"] == one["seconds_taken"] == 0
        assert one["is_least"] and one["seconds_left"] > one["runs"]
        speeds.append(work[name] / (one["seconds_left"] - one["runs"]))  # a second per run for its start
    assert max(speeds) == pytest.approx(min(speeds), rel=0.6), "one speed, but for two calls of the measurement"


def test_what_runs_took_and_the_others_will_take_is_told_from_those_that_are_done(tmp_path):
    runs = put_study(tmp_path / "runs/rho", "rho", done=4, failed=1)
    small = put_study(tmp_path / "runs/paper-small/commonsense", "small/commonsense", done=21)
    found = states(tmp_path)
    assert (found["rho"]["done"], found["rho"]["failed"], found["rho"]["seconds_taken"]) == (4, 1, 400)
    assert found["rho"]["seconds_left"] == pytest.approx(100 * (runs - 4)) and not found["rho"]["is_least"]
    assert found["small/commonsense"]["done"] == small and found["small/commonsense"]["seconds_left"] == 0
    text = succeed("list", "tables", cwd=tmp_path).stdout
    assert re.search(rf"^rho +{runs} +4 +1 +6:40 min +about 18:20 min$", text, re.M), text
    assert re.search(r"^small/commonsense +21 +21 +0 +35:00 min +-$", text, re.M), text
    rho = next(table for table in listed(tmp_path) if table["table"] == "19")
    assert (rho["runs"], rho["done"], rho["studies"]) == (runs, 4, ["rho"])


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
