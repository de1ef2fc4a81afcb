"""Runs the program on file systems without locks, which a preloaded library stands for."""

import errno
import json
import os
import re
import signal
import subprocess
import time

import pytest

from preload import failing_system  # noqa: F401
from tiny import CONFIG, PROGRAM, ROOT, lines, one_line, settings, started, without_seconds

WARNING = re.compile(r"warning \[files\] (\S+): its file system \((\S+) at (\S+)\) has no locks \(.*\): the file \S+, which names this process, takes their place")


@pytest.fixture
def no_locks(failing_system, monkeypatch):  # noqa: F811
    monkeypatch.setenv("LD_PRELOAD", str(failing_system))
    monkeypatch.setenv("NO_LOCKS", str(errno.ENOLCK))


def arguments(model, out, **changes):
    return ["train", CONFIG, "--out", out, *settings(**{"model__path": f'"{model}"', "method__name": '"fedit"', "train__rounds": 2, "data__limit": 40,
                                                        "evaluate__limit": 1, "threads": 1, **changes})]


def begin(*words):
    return subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_until(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    done = started(*arguments(tiny_model, out))
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("links", [True, False], ids=["with hard links", "without hard links"])
@pytest.mark.parametrize("error", ["ENOSYS", "ENOLCK", "EOPNOTSUPP", "EINVAL"])
def test_a_run_on_a_file_system_without_locks_has_the_same_bits_and_one_warning(error, links, whole, tiny_model, tmp_path, no_locks, monkeypatch):
    monkeypatch.setenv("NO_LOCKS", str(getattr(errno, error)))
    monkeypatch.setenv("NO_LINKS", str(int(not links)))
    out = tmp_path / "run"
    done = started(*arguments(tiny_model, out))
    assert done.returncode == 0, done.stderr
    warned = WARNING.findall(done.stderr)
    assert len(warned) == 1 and warned[0][0] == str(out) and str(out).startswith(warned[0][2]), done.stderr
    assert names(out) == names(whole)
    assert (out / "adapter/adapter_model.safetensors").read_bytes() == (whole / "adapter/adapter_model.safetensors").read_bytes()
    assert without_seconds(lines(out / "evaluations.jsonl")) == without_seconds(lines(whole / "evaluations.jsonl"))


def test_one_process_at_a_time_works_in_a_folder_without_locks(tiny_model, tmp_path, no_locks):
    out = tmp_path / "run"
    words = arguments(tiny_model, out, train__rounds=40)
    process = begin(*words)
    wait_until(lambda: (out / "rounds.jsonl").exists(), process)
    process.send_signal(signal.SIGSTOP)
    try:
        for more in ([], ["--resume"]):
            one_line(started(*words, *more), f"in use by process {process.pid} on ")
        assert f"process {process.pid} on " in started("status", out).stdout
    finally:
        process.kill()
        process.communicate()
    assert (out / ".lock").exists() and "resume with" in started("status", out).stdout
    done = started(*arguments(tiny_model, out, train__rounds=40), "--resume")
    assert done.returncode == 0, done.stderr
    assert not [name for name in names(out) if name.startswith(".")]


def test_a_lock_of_another_host_is_refused_with_what_to_remove(tiny_model, tmp_path, no_locks):
    out = tmp_path / "run"
    process = begin(*arguments(tiny_model, out, train__rounds=40))
    wait_until(lambda: (out / "rounds.jsonl").exists(), process)
    process.kill()
    process.communicate()
    lock = json.loads((out / ".lock").read_text())
    (out / ".lock").write_text(json.dumps({**lock, "host": "node07"}) + "\n")
    words = [*arguments(tiny_model, out, train__rounds=40), "--resume"]
    one_line(started(*words), f"in use by process {process.pid} on node07 since", f"if that process has ended, remove {out}/.lock")
    assert (out / ".lock").exists()
    (out / ".lock").write_text(json.dumps({**lock, "boot": "before"}) + "\n")
    done = started(*words)
    assert done.returncode == 0, done.stderr


def study_words(model, folder, rounds, seeds):
    """Writes a study of two methods into `folder`. Returns the words that run it."""
    (folder / "base.toml").write_text(CONFIG.read_text())
    arms = "".join(f'[[study.arm]]\nname = "{name}"\nset = ["method.name={name}"]\n' for name in ("fedit", "flexlora"))
    (folder / "study.toml").write_text(f'[study]\nbase = "base.toml"\nseeds = {seeds}\nreference = "fedit"\nendpoint = "accuracy"\n{arms}')
    common = [word for word in arguments(model, "x", train__rounds=rounds)[4:] if word != "--set" and "method.name" not in word]
    return ["study", folder / "study.toml", "--out", folder / "study", *(word for entry in common for word in ("--set", entry))]


def test_a_study_and_an_export_need_no_locks(tiny_model, tmp_path, no_locks):
    words, out = study_words(tiny_model, tmp_path, 1, [1, 2]), tmp_path / "study"
    processes = [begin(*words, "--resume", "--shard", f"{i}/2") for i in (1, 2)]
    for process in processes:
        _, error = process.communicate()
        assert process.returncode == 0, error
    states = [run["state"] for run in json.loads((out / "study.json").read_text())["runs"]]
    assert states == ["done"] * 4 and not [name for name in names(out) if name.startswith(".")]
    done = started("export", "--run", out / "fedit/seed-1", "--out", tmp_path / "export", "--format", "peft")
    assert done.returncode == 0 and WARNING.search(done.stderr), done.stderr
    assert names(tmp_path) == {"base.toml", "study.toml", "study", "export"}


def test_a_run_of_a_study_without_locks_is_claimed_by_one_process(tiny_model, tmp_path, no_locks):
    words, out = study_words(tiny_model, tmp_path, 60, [1]), tmp_path / "study"
    process = begin(*words)
    wait_until(lambda: list(out.glob("*/seed-1/rounds.jsonl")), process)
    one_line(started(*words, "--resume", "--only", "flexlora:1"), "another process makes flexlora:1", f"process {process.pid} on")
    process.kill()
    process.communicate()
    assert list(out.glob(".claims-*"))
    claimed = started(*words, "--resume", "--only", "flexlora:1")
    assert claimed.returncode == 0, claimed.stderr
    assert not list(out.glob(".claims-*"))
