"""Tests `evenkeel status`, the log file of a run, and the commands that messages suggest."""

import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, succeed


def started(*words):
    return subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def pasted(command, **options):
    return subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=600, **options)


@pytest.fixture
def arguments(tiny_model, tmp_path):
    """Returns the arguments of a run in a folder whose name a shell would split."""
    out = tmp_path / "a run's folder"
    return out, ["train", CONFIG, "--out", out, *settings(model__path=tiny_model, evaluate__limit=1, method__name="fedit")]


def test_status_of_a_finished_run(small_run):
    said = succeed("status", small_run).stdout
    loss = lines(small_run / "rounds.jsonl")[-1]["loss"]
    assert said.startswith(f"fedit, round 1 of 1, loss {loss:.4f}\ndone\n")
    assert re.search(r"^log: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ info    \[run\] done$", said, re.M)


def test_status_of_a_running_and_of_a_killed_run(arguments, tmp_path):
    out, words = arguments
    process = started(*words)
    try:
        wait_for(lambda: (out / "rounds.jsonl").exists())
        process.send_signal(signal.SIGSTOP)  # it keeps its locks
        said = succeed("status", out).stdout
        one_line(evenkeel(*words), f"in use by process {process.pid} on", "wait for its end")
        one_line(evenkeel(*words, "--resume"), f"in use by process {process.pid} on", "wait for its end")
    finally:
        process.kill()
        process.communicate()
    assert f"process {process.pid} on " in said and "works on it" in said and "fedit, round " in said
    said = succeed("status", out).stdout
    if "done\n" in said:
        pytest.skip("it was done before it was killed")
    assert "of training left" in said or "the last evaluation is not done" in said
    done = pasted(said.split("resume with: ", 1)[1].splitlines()[0])
    assert done.returncode == 0, done.stderr
    assert "done\n" in succeed("status", out).stdout


def test_status_of_a_folder_without_a_run(tmp_path):
    one_line(evenkeel("status", tmp_path), str(tmp_path), "holds no run")
    one_line(evenkeel("status", tmp_path / "nowhere"), "nowhere", "holds no run")


def test_the_suggested_command_resumes_an_existing_run(small_run, tmp_path):
    out = shutil.copytree(small_run, tmp_path / "a copy")
    said = one_line(evenkeel("train", CONFIG, "--out", out), "holds a run already", "another --out")
    done = pasted(said.split("resume it with: ", 1)[1])
    assert done.returncode == 0, done.stderr


def test_the_log_of_a_run_grows_with_each_process(arguments):
    out, words = arguments
    process = started(*words, "--quiet")
    wait_for(lambda: list(out.glob("checkpoint/uploads-*/*.json")))
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 130
    first = (out / "log.txt").read_text()
    assert f"process {process.pid}\n" in first and "info    [train] fedit on" in first and "train round 1/3" in first
    assert "[run] stopped" in first.splitlines()[-1]
    done = pasted(said.splitlines()[-1].split("resume with: ", 1)[1])
    assert done.returncode == 0, done.stderr
    log = (out / "log.txt").read_text()
    assert log.startswith(first) and log.splitlines()[-1].endswith("[run] done")
    assert len(re.findall(r"\[run\] evenkeel \S+, process \d+\n", log)) == 2
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (info   |warning|error  ) ", line) for line in log.splitlines())


def test_warnings_from_before_the_folder_was_created_are_in_the_log(tiny_model, tmp_path):
    out = tmp_path / "out"
    done = succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1, data__limit=30, data__cutoff=100,
                                                            evaluate__limit=1, method__name="fedit", evaluate__budgets="[1.0]"))
    warned = next(line for line in done.stderr.splitlines() if "are longer than data.cutoff" in line)
    assert warned.split("warning ", 1)[1] in (out / "log.txt").read_text()


def test_a_failed_run_logs_its_error(tiny_model, tmp_path):
    out = tmp_path / "out"
    done = evenkeel("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__optimizer__lr="1e6", method__name="fedit"))
    assert done.returncode == 1 and "the loss is" in done.stderr
    assert "error   " in (out / "log.txt").read_text().splitlines()[-1]


def test_the_suggested_command_recovers_from_damage(tiny_model, tmp_path):
    out = tmp_path / "a run"
    succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=2, evaluate__limit=1, data__limit=30,
                                                     method__name="fedit", evaluate__budgets="[1.0]"))
    state = out / "checkpoint/round-2/state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"x")
    said = one_line(evenkeel("train", CONFIG, "--out", out, "--resume"), "round 1 is whole", "nothing was changed")
    done = pasted(said.split("gone on from by: ", 1)[1])
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted")
def test_a_full_disk_is_reported_with_the_next_step(tiny_model, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if pasted(f"mount -t tmpfs -o size=400k none '{disk}'").returncode != 0:
        pytest.skip("no mount")
    try:
        words = ["train", CONFIG, "--out", disk / "run", *settings(model__path=tiny_model, evaluate__limit=1, method__name="fedit")]
        (disk / "ballast").write_bytes(b"x" * 200_000)
        done = evenkeel(*words)
        if done.returncode == 0:
            pytest.skip("the run is smaller than the disk")
        said = one_line(done, "No space left on device", "make room, then: ")
        (disk / "ballast").unlink()
        subprocess.run(["mount", "-o", "remount,size=200m", disk], check=True)
        done = pasted(said.split("make room, then: ", 1)[1])
        assert done.returncode == 0, done.stderr
    finally:
        subprocess.run(["umount", disk], check=True)
