"""Tests `cmake --install`, shell completions, the manual page and the demo (apps/command_demo.cpp)."""

import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

from hostile import refused
from tiny import PROGRAM, ROOT, nightly, succeed


def commands():
    """Returns the names of the commands that --help lists."""
    listed = succeed("--help").stdout.partition("Subcommands:")[2]
    return re.findall(r"^  ([a-z][a-z-]+) ", listed, re.MULTILINE)


def flags(command):
    return set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", succeed(command, "--help").stdout, re.MULTILINE))


def test_help_has_one_line_per_command():
    listed = succeed("--help").stdout.partition("Subcommands:")[2].strip().splitlines()
    assert len(commands()) == len(listed) >= 19
    assert all(len(line.split(maxsplit=1)) == 2 for line in listed)


@pytest.mark.parametrize("words", [("man",), ("completion", "bash"), ("completion", "zsh"), ("completion", "fish")])
def test_every_command_and_flag_is_named(words):
    text = re.sub(r"\\f[BIR]", "", succeed(*words).stdout.replace("\\-", "-"))
    for command in commands():
        assert re.search(rf"(?<![\w-]){re.escape(command)}(?![\w-])", text), command
    for flag in flags("train") | flags("generate") | {"--quiet"}:
        assert re.search(rf"(?<![\w-])(-l )?{flag if words[-1] != 'fish' else flag[2:]}(?![\w-])", text), flag


def completed(line):
    """Returns the completions of bash for the last word of a line."""
    words = " ".join(f"'{word}'" for word in line.split(" "))
    script = (f"source <({PROGRAM} completion bash); COMP_WORDS=({words}); COMP_CWORD={len(line.split(' ')) - 1}; _evenkeel; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, timeout=600).stdout.split()


@pytest.mark.parametrize("line, offered", [
    ("evenkeel tr", ["train"]), ("evenkeel ge", ["generate"]), ("evenkeel --qu", ["--quiet"]),
    ("evenkeel train --res", ["--resume"]), ("evenkeel --quiet export --form", ["--format"]), ("evenkeel train runs", []),
    ("evenkeel nothing", [])])
def test_bash_completes_commands_then_their_flags_then_files(line, offered):
    assert completed(line) == offered


@pytest.mark.parametrize("shell, check", [("bash", ["bash", "-n"]), ("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])])
def test_a_completion_script_is_valid_in_its_shell(shell, check, tmp_path):
    if not shutil.which(check[0]):
        pytest.skip(f"{check[0]} is not installed")
    (tmp_path / "script").write_text(succeed("completion", shell).stdout)
    assert subprocess.run([*check, tmp_path / "script"], capture_output=True, text=True).stderr == ""


def test_an_unknown_shell_is_refused():
    for shell in ("tcsh", "", "bash2"):
        refused("completion", shell, says=["allowed: bash, zsh, fish"])


def test_man_formats_the_manual_page_without_a_warning(tmp_path):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    (tmp_path / "evenkeel.1").write_text(succeed("man").stdout)
    done = subprocess.run(["man", "--warnings", "-l", tmp_path / "evenkeel.1"], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "MANWIDTH": "100", "PAGER": "cat", "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    for words in ("evenkeel - Federated", "--resume", "EXIT STATUS", "evenkeel train configs/demo.toml"):
        assert words in " ".join(done.stdout.split()), words


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Installs the program, moves the installation to another folder, and returns that folder."""
    build = os.path.dirname(PROGRAM)
    if not os.path.isfile(os.path.join(build, "cmake_install.cmake")):
        pytest.skip("the program is not in its build folder")
    prefix = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--strip"], check=True, capture_output=True, timeout=600)
    moved = prefix.parent / "moved"
    prefix.rename(moved)
    yield moved
    shutil.rmtree(moved)


def test_an_installed_program_has_its_files_and_libraries_and_runs(installed, tmp_path):
    for file in ("bin/evenkeel", "share/evenkeel/configs/demo.toml", "share/evenkeel/assets/tiny-olmoe/model.safetensors",
                 "share/man/man1/evenkeel.1", "share/bash-completion/completions/evenkeel", "share/fish/vendor_completions.d/evenkeel.fish",
                 "share/zsh/site-functions/_evenkeel"):
        assert (installed / file).stat().st_size > 0, file
    program = installed / "bin/evenkeel"
    nothing = {"PATH": "/usr/bin:/bin"}
    loaded = subprocess.run(["ldd", program], capture_output=True, text=True, env=nothing).stdout
    assert re.search(rf"libtorch_cpu.so => {re.escape(str(installed))}/", loaded) and "not found" not in loaded
    done = subprocess.run([program, "generate", "--model", "builtin:tiny-olmoe", "--prompt", "Once", "--max-new-tokens", "4"],
                          capture_output=True, text=True, env=nothing, cwd=tmp_path, timeout=600)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    listed = subprocess.run([program, "list", "configs"], capture_output=True, text=True, env=nothing, cwd=tmp_path).stdout
    assert str(installed / "share/evenkeel/configs/demo.toml") in listed and str(ROOT) not in listed


def test_an_installed_program_runs_methods_in_python(installed, tmp_path):
    done = subprocess.run([installed / "bin/evenkeel", "list", "methods", "--method", f"{ROOT / 'docs/examples/method/fedprox.py'}:FedProx"],
                          capture_output=True, text=True, cwd=tmp_path, timeout=600,
                          env={"PATH": "/usr/bin:/bin", "EVENKEEL_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"})
    assert done.returncode == 0 and "\nfed-prox " in done.stdout, done.stderr


def demo(tmp_path):
    """Starts the demo with its own folder for temporary files. Returns the process."""
    (tmp_path / "t").mkdir()
    return subprocess.Popen([PROGRAM, "demo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
                            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / "t")})


def test_an_interrupted_demo_leaves_no_files(tmp_path):
    process = demo(tmp_path)
    for line in process.stderr:
        if "round 1/4: loss" in line:
            break
    assert list((tmp_path / "t").iterdir())
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == 130 and "stopped" in said.splitlines()[-1] and "resume" not in said, said
    assert not list((tmp_path / "t").iterdir()) and [path.name for path in tmp_path.iterdir()] == ["t"]


@nightly
def test_the_demo_prints_a_table_and_leaves_no_files(tmp_path):
    process = demo(tmp_path)
    shown, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    rows = {line[:26].strip(): [float(cell) for cell in line[26:].split()]
            for line in shown.splitlines() if re.search(r"( +[\d.]+){5}$", line)}
    assert list(rows) == ["before training", "FedIT", "UB-SMoE", "the most frequent answer"]
    for values in rows.values():
        assert abs(values[4] - sum(values[:4]) / 4) < 0.11
    assert rows["before training"] == [0.0] * 5
    assert min(rows["FedIT"]) > 50 and min(rows["UB-SMoE"]) > 50
    assert "What it shows: " in shown and "What to do next: " in shown
    gap = re.search(r"their difference of ([\d.]+) points", shown)
    assert float(gap[1]) == pytest.approx(abs(rows["FedIT"][4] - rows["UB-SMoE"][4]), abs=1e-6)
    assert not list((tmp_path / "t").iterdir()) and [path.name for path in tmp_path.iterdir()] == ["t"]


def test_a_demo_does_not_overwrite_a_folder(tmp_path):
    (tmp_path / "demo-ub-smoe").mkdir()
    refused("demo", "--out", tmp_path, says=["demo-ub-smoe exists already"])
    refused("demo", "--full", "--out", tmp_path, says=["demo-ub-smoe exists already"])
    assert [path.name for path in tmp_path.iterdir()] == ["demo-ub-smoe"]


def test_a_demo_reports_a_missing_temporary_folder(tmp_path):
    done = subprocess.run([PROGRAM, "demo"], capture_output=True, text=True, cwd=tmp_path, timeout=600,
                          env={**os.environ, "TMPDIR": str(tmp_path / "nowhere")})
    assert done.returncode == 1 and "nowhere" in done.stderr and done.stderr.count("\n") <= 2
