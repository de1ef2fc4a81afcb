"""Tests the benchmark of many clients (bench/simulation) with this program alone, and how it counts processes."""

import argparse
import json
import os
import subprocess
import sys

import pytest

from tiny import ROOT, nightly

sys.path[:0] = [str(ROOT / "bench/simulation"), str(ROOT / "bench")]
import peers  # noqa: E402
import processes  # noqa: E402
import simulation  # noqa: E402
import tables  # noqa: E402

# A process that leaves its parent and its session, as Ray's do, then takes memory and processor time. What it writes is
# measured when it is read, so the program waits for a file after each of its two marks.
DETACHED = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
import time
input()
held, end = bytearray(b"x") * (80 << 20), time.process_time() + 0.3
while time.process_time() < end: pass
print("held", flush=True)
input()
'''], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def mark(word):
    print(word, flush=True)
    print("wait for " + word, flush=True)
    while not os.path.exists(os.path.join(sys.argv[1], word)):
        time.sleep(0.01)
    child.stdin.write("go on\\n")
    child.stdin.flush()

mark("begin")
child.stdout.readline()
time.sleep(3)  # the memory is looked at several times a second
mark("end")
child.wait()
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Returns the record of two populations, with rows of 16 tokens."""
    out = tmp_path_factory.mktemp("simulation") / "record.json"
    done = subprocess.run([sys.executable, ROOT / "bench/simulation/simulation.py", "--systems", "evenkeel", "--clients", "10", "4", "--rounds",
                           "1", "--out", out], capture_output=True, text=True, env={**os.environ, "EVENKEEL_SIMULATION_TOKENS": "16"})
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


def test_the_record_tells_times_memory_and_workers(record):
    system = record["simulation"]["evenkeel"]
    time = system["time"]
    assert (time["clients"], time["drawn"], [alone["steps"] for alone in time["alone"]]) == (10, 10, [40, 40])
    assert time["s_per_round"] == pytest.approx(10 * time["s_per_client"])
    assert time["overhead"] == pytest.approx(time["s_per_round"] / (40 * time["ms_per_step"] / 1000) - 1)
    assert time["overhead_cpu"] == pytest.approx(10 * time["cpu_s_per_client"] / (40 * time["cpu_ms_per_step"] / 1000) - 1)
    assert 0 < time["run"]["parts"][0]["train"] < time["s_per_round"]
    assert [(point["clients"], point["drawn"]) for point in system["memory"]] == [(4, 4), (10, 10)]
    assert all(40 < point["peak_pss_mib"] < 2000 for point in system["memory"])
    assert [run["workers"] for run in system["workers"]] == [1, 2]
    assert system["workers"][0]["loss"] == system["workers"][1]["loss"], "the bits do not depend on the workers"


def test_the_rows_are_trained_as_they_are_made(record):
    assert record["task"]["tokens"] == 16
    loss = record["simulation"]["evenkeel"]["time"]["run"]["first_round"]["loss"]
    assert 6.5 < loss < 9, "somewhat above the logarithm of 1,024 ids"


def test_a_table_has_a_line_per_system(record):
    head, _, line = tables.simulation(record).splitlines()
    assert "MiB at 4 / 10" in head and line.startswith("| evenkeel |")


def test_memory_and_time_of_processes_that_left_their_parent_count(tmp_path):
    def mark_of(line):
        word = line.split()[-1]
        if not line.startswith("wait for "):
            return {"loss": word}
        (tmp_path / word).touch()  # the mark before this line is measured by now
        return None

    marks, peak = processes.run([sys.executable, "-c", DETACHED, tmp_path], mark_of, tmp_path / "log", memory=True)
    (seconds,) = processes.between(marks)
    assert peak > 80 and seconds["loss"] == "end"
    assert 0.2 < seconds["cpu_s"] < seconds["wall_s"]


def test_a_command_that_fails_ends_the_benchmark_with_its_output(tmp_path):
    with pytest.raises(SystemExit, match="(?s)exit 3.*no such thing"):
        processes.run(["sh", "-c", "echo no such thing >&2; exit 3"], lambda line: None, tmp_path / "log")


def test_a_peer_that_is_not_installed_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(peers, "PYTHON", ROOT / "no-environment/bin/python")
    assert "tools/setup simulation" in peers.Peer("pfl").missing()


def test_parts_are_added_to_a_record_of_the_same_task_only(record, tmp_path, monkeypatch):
    out = tmp_path / "record.json"
    out.write_text(json.dumps(record))
    chosen = argparse.Namespace(out=out)
    with pytest.raises(SystemExit, match="another task"):
        simulation.opened(chosen)  # here rows have 96 tokens
    monkeypatch.setattr(simulation.task, "LENGTH", 16)
    assert simulation.opened(chosen) == record
    assert simulation.opened(argparse.Namespace(out=None))["simulation"] == {}


@nightly
def test_memory_grows_with_the_tokens_of_the_rows_alone(tmp_path):
    """A row of 96 tokens takes 0.8 kB. Their text, 4 kB with what it is read into, is given back before the first round."""
    growth = []
    for attempt in range(6):  # other programs of this machine share pages with this one, and take or leave their part of them
        out = tmp_path / f"record-{attempt}.json"
        done = subprocess.run([sys.executable, ROOT / "bench/simulation/simulation.py", "--systems", "evenkeel", "--clients", "10", "140", "--parts",
                               "memory", "--out", out], capture_output=True, text=True, env={**os.environ, "EVENKEEL_SIMULATION_TOKENS": "96"})
        assert done.returncode == 0, done.stderr
        few, many = json.loads(out.read_text())["simulation"]["evenkeel"]["memory"]
        growth.append((many["peak_pss_mib"] - few["peak_pss_mib"]) * 2**20 / (130 * 16))
        if growth[-1] < 2500:
            break
    assert growth[-1] < 2500, growth
