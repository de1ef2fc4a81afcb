"""Checks packaging/: the dashboard queries metrics that a server exports, and the units name flags and folders that exist."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from test_federation import Processes, federation, free_port, wait_for, wait_until
from tiny import PROGRAM, ROOT, settings, succeed, tiny_model  # noqa: F401

UNITS = sorted((ROOT / "packaging/systemd").glob("*.service"))


@pytest.fixture
def processes():
    with Processes() as stack:
        yield stack


def page(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.read().decode()


def asked_for():
    board = json.loads((ROOT / "packaging/grafana/evenkeel.json").read_text())
    return {name for panel in board["panels"] for target in panel["targets"]
            for name in re.findall(r"evenkeel_[a-z_]+", target["expr"])}


def has_answer(address):
    try:
        return page(address, "/livez") == ""
    except (urllib.error.URLError, ConnectionError):
        return False


def test_every_metric_of_the_dashboard_is_exported_by_the_server(processes, tiny_model, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    server, nodes, _, _ = federation(processes, tmp_path, tiny_model, "fedit", address=address, train__rounds=3)
    log = tmp_path / "serve.log"
    wait_until(lambda: has_answer(address), log)
    assert page(address, "/readyz") == ""
    text = ""

    def first_round_is_done():
        nonlocal text
        text = page(address, "/metrics")
        return "evenkeel_round_seconds_count" in text and int(re.search(r"round_seconds_count (\d+)", text)[1]) >= 1

    wait_until(first_round_is_done, log)
    has = set(re.findall(r"^(evenkeel_[a-z_]+)[{ ]", text, re.MULTILINE))
    assert len(asked_for()) >= 12, "the panels of the dashboard were not found in its file"
    assert asked_for() <= has, asked_for() - has
    assert re.search(r'evenkeel_build_info\{version="[\d.]+",compiler="[^"]+"\} 1', text)
    counts = [int(count) for count in re.findall(r"round_seconds_bucket\{le=\"[^\"]+\"\} (\d+)", text)]
    assert counts == sorted(counts) and counts[-1] == int(re.search(r"round_seconds_count (\d+)", text)[1])
    assert wait_for(server, log) == 0


def command_of(unit):
    line = re.search(r"^ExecStart=((?:.*\\\n)*.*)", unit.read_text(), re.MULTILINE)[1].replace("\\\n", " ")
    return shlex.split(line)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_flags_in_a_systemd_unit_exist(unit):
    words = command_of(unit)
    known = set(re.findall(r"--[\w-]+", succeed(words[1], "--help").stdout))
    flags = [word for word in words if word.startswith("--")]
    example = re.search(r'EVENKEEL_\w+="([^"]+)"', unit.read_text())[1]
    assert flags and set(flags) | set(re.findall(r"--[\w-]+", example)) <= known


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_accepted_by_systemd(unit, tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    text = unit.read_text().replace("/usr/local/bin/evenkeel", PROGRAM).replace("Documentation=man:evenkeel(1)\n", "")
    (tmp_path / unit.name).write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", tmp_path / unit.name], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_a_server_notifies_systemd_that_it_is_ready_and_alive(processes, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(600)
        process = subprocess.Popen(
            [PROGRAM, "serve", ROOT / "configs/tiny/train.toml", "--out", tmp_path / "run", "--listen", "127.0.0.1:0", "--open",
             "--insecure", "--no-evaluation", *settings(model__path='"builtin:tiny-olmoe"')], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"})
        processes.callback(Processes.end, process)
        seen = [manager.recv(4096).decode()]
        while "WATCHDOG=1" not in seen or "READY=1" not in seen:
            seen.append(manager.recv(4096).decode())
        assert seen.index("READY=1") <= seen.index("WATCHDOG=1")
        process.terminate()
        while "STOPPING=1" not in seen:
            seen.append(manager.recv(4096).decode())
        assert process.wait(timeout=600) == 130
