"""Tests ek.Study, which reads the folder of a study and runs `evenkeel study`."""

import os
import pathlib
import time

import pytest

import evenkeel_moe as ek
from package import CONFIG, python, settings
from test_interrupt import is_gone
from tiny import sealed


@pytest.fixture
def folder(small_run, tmp_path):
    (tmp_path / "fedit").mkdir()
    (tmp_path / "fedit/seed-5").symlink_to(small_run)
    runs = [{"arm": "fedit", "seed": 5, "folder": "fedit/seed-5", "state": "done", "config": "0" * 64},
            {"arm": "ub-smoe", "seed": 5, "folder": "ub-smoe/seed-5", "state": "planned", "config": "1" * 64}]
    (tmp_path / "study.json").write_text(sealed({
        "version": 1, "name": "tiny", "reference": "fedit", "endpoint": "accuracy", "seeds": [5], "arms": [
            {"name": "fedit", "set": ["method.name=fedit"], "config": "2" * 64},
            {"name": "ub-smoe", "set": ["method.name=ub-smoe"], "config": "3" * 64}],
        "set": [], "common": [], "free": [], "pinned": [], "base": "0" * 64, "runs": runs}) + "\n")
    return tmp_path


def test_the_runs_of_a_study_folder_are_read(folder, small_run):
    study = ek.Study.open(folder)
    assert study.state["reference"] == "fedit" and [run["state"] for run in study.runs_list()] == ["done", "planned"]
    assert [len(run.rounds_list()) for run in study.runs()] == [1] and study.runs("ub-smoe") == []
    assert study.runs("fedit")[0].path.resolve() == small_run.resolve()
    assert list(study.runs_list().frame()["arm"]) == ["fedit", "ub-smoe"]


def test_a_folder_without_a_study_is_rejected(tmp_path):
    with pytest.raises(ek.EvenkeelError, match="holds no study"):
        ek.Study.open(tmp_path)


def test_the_page_of_a_study_outlives_its_runs(folder, tmp_path):
    page, before = ek.Study.open(folder).page(), (folder / "study.json").read_bytes()
    (folder / "fedit/seed-5").unlink()
    assert page.save(tmp_path / "page.html").read_text() == page.html
    with pytest.raises(ek.EvenkeelError, match="reads or keeps"):
        page.save(folder / "study.json")
    assert (folder / "study.json").read_bytes() == before


def test_runs_are_chosen_by_a_list(folder):
    with pytest.raises(TypeError, match=r"^only is one text, allowed: a list of texts, as \['fedit:5'\]$"):
        ek.Study.open(folder).run(only="fedit:5")


ENDLESS = """
import sys, evenkeel_moe as ek
from package import settings
model, folder = sys.argv[1:3]
ek.Study(folder + "/study.toml", out=folder + "/study").run(set=settings(model, train__rounds=1000, evaluate__every=1000))
"""


def test_a_study_ends_with_its_python(tiny_model, tmp_path):
    (tmp_path / "base.toml").write_text(CONFIG.read_text())
    (tmp_path / "study.toml").write_text('[study]\nbase = "base.toml"\nseeds = [1]\nreference = "fedit"\nendpoint = "accuracy"\n'
                                         '[[study.arm]]\nname = "fedit"\n')
    process = python(ENDLESS, tiny_model, tmp_path)
    rounds = tmp_path / "study/fedit/seed-1/rounds.jsonl"
    while not rounds.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    (program,) = map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    runs = [int(child) for task in os.listdir(f"/proc/{program}/task") for child in pathlib.Path(f"/proc/{program}/task/{task}/children").read_text().split()]
    process.kill()
    process.wait()
    assert is_gone(program) and runs and all(map(is_gone, runs))
    assert [run["state"] for run in ek.Study.open(tmp_path / "study").runs_list()] == ["planned"]


def test_a_study_can_be_run_and_reported(tiny_model, tmp_path):
    (tmp_path / "base.toml").write_text(CONFIG.read_text())
    arms = "".join(f'[[study.arm]]\nname = "{name}"\nset = ["method.name={name}"]\n' for name in ("fedit", "a3smoe"))
    (tmp_path / "study.toml").write_text(f'[study]\nbase = "base.toml"\nseeds = [1, 2]\nreference = "fedit"\nendpoint = "accuracy"\n'
                                         f'set = ["method.gate_norm=renorm_selected"]\n{arms}')
    chosen = {key: value for key, value in settings(tiny_model, train__rounds=1, evaluate__limit=2).items() if key != "method.name"}
    study = ek.Study(tmp_path / "study.toml", out=tmp_path / "study")
    assert len(study.run(set=chosen, only=["fedit:1"]).runs()) == 1
    moved = tmp_path / "moved"
    moved.symlink_to(tiny_model)
    assert len(study.run(set=chosen, base=moved).runs()) == 4 and len(study.runs("a3smoe")) == 2
    assert study.state["moved_base"] == str(moved)


def test_the_arms_of_a_study_are_compared(folder):
    study = ek.Study.open(folder)
    report = study.report()
    assert (report["version"], report["reference"]) == (1, "fedit") and report["missing"]
    values = study.values
    assert values["budget"].dtype == values["top_k"].dtype == float  # numbers; those of a whole run are missing
    assert set(values["budget"].isna() == values["top_k"].isna()) == {True} and values["budget"].isna().any()
    scores = ek.Run(folder / "fedit/seed-5").evaluations
    accuracy = values[values["measure"] == "accuracy"].set_index("task")["value"]
    assert accuracy.to_dict() == scores.set_index("task")["accuracy"].to_dict()
    assert "<iframe" in study.page()._repr_html_()
