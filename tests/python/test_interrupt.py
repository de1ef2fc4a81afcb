"""Tests Ctrl-C, exceptions in callbacks and the end of the Python process: the program saves its state, and the run resumes."""

import os
import signal
import subprocess
import time

import pytest

import evenkeel_moe as ek
from package import python, train
from tiny import without_seconds

LONG = {"train__rounds": 40, "evaluate__limit": 1, "data__limit": 90}
CODE = """
import sys, evenkeel_moe as ek
from package import CONFIG, settings
model, out = sys.argv[1:3]
try:
    ek.train(CONFIG, set=settings(model, train__rounds=40, evaluate__limit=1, data__limit=90), out=out, on_round=lambda round: print(round, flush=True),
             on_event=lambda event: print(event["pid"], flush=True) if event["event"] == "start" else None)
except KeyboardInterrupt as interrupt:
    print("interrupted:", interrupt, flush=True)
    raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def whole(tiny_model, tmp_path_factory):
    return train(tiny_model, tmp_path_factory.mktemp("whole") / "run", LONG)


def is_gone(pid):
    for _ in range(6000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def begun(tiny_model, out):
    """Starts a Python process that trains. Returns it and the program's process id once a round is finished."""
    process = python(CODE, tiny_model, out, start_new_session=True)
    pid = int(process.stdout.readline())
    assert "round 1/40" in process.stdout.readline()
    return process, pid


def same_run(run, whole):
    return without_seconds(run.rounds_list()) == without_seconds(whole.rounds_list()) and \
        (run.path / "adapter/adapter_model.safetensors").read_bytes() == (whole.path / "adapter/adapter_model.safetensors").read_bytes()


@pytest.mark.parametrize("to_group", [False, True], ids=["the process", "its group, as a terminal does"])
def test_ctrl_c_saves_the_state_and_raises_keyboard_interrupt(tiny_model, whole, tmp_path, to_group):
    process, pid = begun(tiny_model, tmp_path / "run")
    (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 3, error
    assert "interrupted: " in out and "the state is saved; resume with" in out and "Traceback" not in error
    assert is_gone(pid)
    run = ek.Run(tmp_path / "run")
    assert 1 <= len(run.rounds_list()) < 40
    assert same_run(run.resume(), whole)


def test_a_second_ctrl_c_ends_the_program_at_once(tiny_model, tmp_path):
    process, pid = begun(tiny_model, tmp_path / "run")
    os.kill(pid, signal.SIGSTOP)  # so that the program cannot reach a point at which it stops
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    os.kill(pid, signal.SIGCONT)
    process.communicate(timeout=600)
    assert process.returncode == 3 and is_gone(pid)


def test_an_exception_in_a_callback_stops_the_run_and_the_state_is_saved(tiny_model, whole, tmp_path):
    def stop(round):
        if round.round == 2:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        train(tiny_model, tmp_path / "run", LONG, on_round=stop)
    run = ek.Run(tmp_path / "run")
    assert 2 <= len(run.rounds_list()) < 40
    assert same_run(run.resume(), whole)


def test_the_program_ends_with_the_python_process_that_reads_it(tiny_model, whole, tmp_path):
    process, pid = begun(tiny_model, tmp_path / "run")
    process.kill()
    process.communicate()
    assert is_gone(pid)
    run = ek.Run(tmp_path / "run")
    assert len(run.rounds_list()) < 40
    assert same_run(run.resume(), whole)


def test_an_evaluation_can_be_interrupted(whole, tmp_path):
    code = "import sys, evenkeel_moe as ek\ntry:\n    ek.evaluate(run=sys.argv[1], limit=0, budget=[0.125 + i / 1000 for i in range(50)],\n" \
           "                on_event=lambda event: print(event['event'], flush=True))\nexcept KeyboardInterrupt as interrupt: print(interrupt)"
    process = python(code, whole.path)
    assert [process.stdout.readline() for _ in range(2)] == ["start\n", "progress\n"]
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=600)
    assert process.returncode == 0 and "started again" in out, error


def test_a_killed_program_raises_an_error(tiny_model, tmp_path):
    def kill(event):
        if event["event"] == "start":
            subprocess.run(["kill", "-KILL", str(event["pid"])], check=True)

    with pytest.raises(ek.EvenkeelError, match="ended by SIGKILL, as the system does when memory runs out") as caught:
        train(tiny_model, tmp_path / "run", LONG, on_event=kill)
    assert caught.value.exit_code == -signal.SIGKILL
