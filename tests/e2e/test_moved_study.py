"""Tests that a study goes on after its base model was moved: --base says where to, and the files have to be the same. Tests that
it goes on while the program's file is replaced.
"""

import json
import os
import shutil
import subprocess
import time

import pytest

from test_settled import ADAPTER, place  # noqa: F401
from tiny import PROGRAM, one_line, started, succeed

STUDY = """[study]
base = "run.toml"
reference = "fedit"
seeds = [1, 2]
set = ["train.rounds=4", "data.files.train=['a/rows.jsonl']", "model.path='a/m'"]
[[study.arm]]
name = "fedit"
[[study.arm]]
name = "ffa-lora"
set = ["method.name='ffa-lora'"]
"""


def study(place, *words):
    """Runs study.toml. The program is started, because it starts itself for the runs."""
    return started("study", "study.toml", *words, cwd=place)


def done(place, *words):
    process = study(place, *words)
    assert process.returncode == 0, process.stderr
    return process


def adapters(study):
    return {f"{file.parents[2].name}/{file.parents[1].name}": file.read_bytes() for file in study.glob(f"*/seed-*/{ADAPTER}")}


def killed(place, *words, after):
    """Kills a study as soon as after() is true."""
    process = subprocess.Popen([PROGRAM, "study", "study.toml", *words], cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not after():
        time.sleep(0.005)
    process.kill()
    process.wait()


@pytest.fixture
def moved_study(place):  # noqa: F811
    """Returns place with a study s of which one run is done and one has begun, whose base was moved; and the whole study t."""
    (place / "study.toml").write_text(STUDY)
    done(place, "--out", "t")
    done(place, "--out", "s", "--only", "fedit:1")
    killed(place, "--out", "s", "--resume", "--only", "ffa-lora:1", after=(place / "s/ffa-lora/seed-1/rounds.jsonl").exists)
    (place / "a/m").rename(place / "moved")
    return place


def test_a_study_whose_base_was_moved_goes_on_from_where_it_is_now(moved_study):
    place, resume = moved_study, ["--out", "s", "--resume"]
    one_line(study(place, *resume), f"{place}/a/m, the base model of arm fedit, is not there", "--base FOLDER")
    one_line(study(place, *resume, "--base", "b/m"), "fedit:1", f"{place}/b/m/model.safetensors has changed")
    assert json.loads((place / "s/study.json").read_text())["moved_base"] == ""
    assert f"--base {place}/moved" in done(place, *resume, "--base", place / "moved", "--dry-run").stdout  # of the job array
    done(place, *resume, "--base", "moved", "--only", "ffa-lora:1", "--only", "ffa-lora:2")
    assert json.loads((place / "s/study.json").read_text())["moved_base"] == str(place / "moved")
    done(place, *resume)  # study.json names it
    assert adapters(place / "s") == adapters(place / "t") and len(adapters(place / "s")) == 4
    succeed("report", "s", cwd=place)


def test_a_study_whose_base_was_moved_takes_more_arms_and_seeds_and_may_move_again(moved_study):
    place, resume = moved_study, ["--out", "s", "--resume"]
    done(place, *resume, "--base", "moved")
    (place / "moved").rename(place / "again")
    (place / "study.toml").write_text(STUDY.replace("[1, 2]", "[1, 2, 3]") + '[[study.arm]]\nname = "flora"\nset = ["method.name=\'flora\'"]\n')
    one_line(study(place, *resume), f"{place}/moved, the base model of arm fedit, is not there")
    done(place, *resume, "--base", "again")
    assert len(adapters(place / "s")) == 9
    assert f'path = "{place}/again"' in (place / "s/flora/arm.toml").read_text()
    (place / "again").rename(place / "a/m")
    done(place, *resume, "--base", "a/m")
    assert {name: adapters(place / "s")[name] for name in adapters(place / "t")} == adapters(place / "t")


def test_base_names_the_one_base_of_a_study_of_which_a_run_has_begun(place):  # noqa: F811
    (place / "study.toml").write_text(STUDY)
    words = ["--out", "s", "--base", "b/m"]
    one_line(study(place, *words), "--base is b/m", "together with --resume")
    one_line(study(place, *words, "--resume"), "--base is b/m", "holds no study yet")
    assert not (place / "s").exists()
    killed(place, "--out", "s", after=(place / "s/study.json").exists)
    shutil.rmtree(place / "s/fedit/seed-1", ignore_errors=True)
    one_line(study(place, *words, "--resume"), "--base is b/m", "no run of s has begun")
    free = STUDY.replace('reference =', 'free = ["model.path"]\nreference =').replace("method.name='ffa-lora'", "model.path='b/m'")
    (place / "study.toml").write_text(free)
    done(place, "--out", "two", "--only", "fedit:1")
    one_line(study(place, "--out", "two", "--resume", "--base", "b/m"),
             "several base models", f"{place}/a/m, {place}/b/m")


def study_with(change, place):  # noqa: F811
    """Runs study.toml with a copy of the program, calls change(copy) during the first run, and returns exit code and errors."""
    (place / "study.toml").write_text(STUDY)
    copy = place / "evenkeel"
    shutil.copy(PROGRAM, copy)
    process = subprocess.Popen([copy, "study", "study.toml", "--out", "s"], cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"},
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (place / "s/fedit/seed-1").exists():
        time.sleep(0.005)
    change(copy)
    errors = process.communicate(timeout=600)[1]
    return process.returncode, errors


def test_a_study_goes_on_with_its_program_when_the_file_is_replaced(place):  # noqa: F811
    def replace(copy):
        other = copy.with_name("other")
        other.write_text("#!/bin/sh\nexit 3\n")
        other.chmod(0o755)
        other.rename(copy)

    code, errors = study_with(replace, place)
    assert code == 0, errors
    done(place, "--out", "t")
    assert adapters(place / "s") == adapters(place / "t") and len(adapters(place / "s")) == 4


def test_a_program_that_cannot_be_started_is_named_as_the_reason(place):  # noqa: F811
    code, errors = study_with(lambda copy: copy.chmod(0o644), place)
    assert code == 1
    assert "ffa-lora:2 failed: [io] the program of a run cannot be started: Permission denied" in errors
