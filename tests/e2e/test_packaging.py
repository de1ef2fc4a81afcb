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


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_starts_again_after_every_end_but_a_stop(unit):
    """A key that is not listed yet, a full disk and a port in use end with exit code 1, as a wrong config does."""
    keys = dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"\w+=", line))
    assert keys["Restart"] == "on-failure" and keys["SuccessExitStatus"] == "130" and keys["StartLimitIntervalSec"] == "0"
    assert "RestartPreventExitStatus" not in keys


SLURM = ROOT / "packaging/slurm/one-gpu.sbatch"
SBATCH = {"job-name": r"\w+", "nodes": r"1", "ntasks": r"1", "gpus-per-node": r"1", "cpus-per-task": r"\d+", "mem": r"\d+G", "time": r"\d+:\d\d:\d\d",
          "signal": r"TERM@\d+", "requeue": None, "open-mode": r"append", "output": r"%x-%j\.log"}


def test_the_slurm_script_is_valid_and_its_options_are_those_of_sbatch():
    assert subprocess.run(["bash", "-n", SLURM], capture_output=True).stderr == b""
    lines = SLURM.read_text().splitlines()
    options = [line.removeprefix("#SBATCH --").partition("=") for line in lines if line.startswith("#SBATCH")]
    assert {name for name, _, _ in options} == SBATCH.keys() and len(options) == len(SBATCH)
    assert all(not value if SBATCH[name] is None else re.fullmatch(SBATCH[name], value) for name, _, value in options), options
    first_command = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first_command for i, line in enumerate(lines) if line.startswith("#SBATCH")), "sbatch reads no option after a command"


def submitted(folder, *words, **environment):
    """Runs the script with an srun that starts the command, and a program that prints its arguments."""
    srun = 'test "$1 $2" = "--ntasks=1 --cpus-per-task=${SLURM_CPUS_PER_TASK:-8}" && shift 2 && exec "$@"'
    for name, text in {"srun": srun, "evenkeel": 'echo "$EVENKEEL_TORCH" "$@"', "apptainer": 'echo apptainer "$@"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return subprocess.run(["bash", SLURM, *words], capture_output=True, text=True, env={"PATH": f"{folder}:/usr/bin:/bin"} | environment)


def test_the_slurm_script_starts_a_run_and_continues_it(tmp_path):
    out = tmp_path / "run of mine"
    first = submitted(tmp_path, "run.toml", out, "--set", "seed=8", SLURM_CPUS_PER_TASK="6")
    assert first.stdout == f"auto train run.toml --out {out} --device cuda --threads 6 --set seed=8\n", first.stderr
    out.mkdir()
    again = submitted(tmp_path, "run.toml", out, EVENKEEL="apptainer run --nv evenkeel.sif")
    assert again.stdout == f"apptainer run --nv evenkeel.sif train run.toml --out {out} --device cuda --threads 8 --resume\n", again.stderr
    assert submitted(tmp_path, "run.toml").returncode == 1
    known = set(re.findall(r"--[\w-]+", succeed("train", "--help").stdout))
    assert set(re.findall(r" (--[\w-]+)", again.stdout.partition(" train ")[2])) <= known


def test_the_recipe_of_the_apptainer_image_has_its_sections_and_the_torch_of_the_program():
    text = (ROOT / "packaging/evenkeel.def").read_text()
    header, *sections = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    sections = dict(zip(sections[::2], sections[1::2]))
    assert sections.keys() == {"arguments", "files", "post", "environment", "runscript", "test"}
    assert re.search(r"^Bootstrap: docker\nFrom: \S+$", header, re.MULTILINE)
    built_with = re.search(r"^torch==(\d+\.\d+)", (ROOT / "tools/requirements/torch.txt").read_text(), re.MULTILINE)[1]
    assert f"torch=torch=={built_with}.*" in sections["arguments"]
    for name in ("post", "environment", "runscript", "test"):
        script = sections[name].replace("{{ torch }}", "torch==2.13.*")
        assert "{{" not in script and subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize("page", ["docs/gpu.md", "docs/installing.md"])
def test_pages_name_the_torch_that_a_gpu_needs(page):
    built_with = re.search(r"^torch==(\d+\.\d+)", (ROOT / "tools/requirements/torch.txt").read_text(), re.MULTILINE)[1]
    assert f"torch {built_with}" in (ROOT / page).read_text()


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
