"""Tests the program with a CUDA build of LibTorch on a machine without an NVIDIA driver: a GPU that is asked for is one
line, and everything else is computed on the processor.

EVENKEEL_CUDA_TORCH names the folder of such a torch, the one that holds version.py and lib/. Two programs are tried: the
one in build-gpu, if it was built with this torch, and the program of the other tests with its libraries, as `make gpu`
starts it, if both are of the same minor version.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest

from tiny import CONFIG, PROGRAM, ROOT, lines, one_line, settings, succeed

TORCH = pathlib.Path(os.environ.get("EVENKEEL_CUDA_TORCH", "$EVENKEEL_CUDA_TORCH"))  # without it: not there
BUILT = ROOT / "build-gpu"


def minor(torch):
    version = re.search(r"^__version__ = ['\"]([^'\"+]+)", (torch / "version.py").read_text(), re.MULTILINE)[1]
    return version.split(".")[:2]


def torch_of(build):
    return pathlib.Path(re.search(r"^LIBTORCH_ROOT:PATH=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE)[1])


def built_with_it():
    if not (BUILT / "evenkeel").is_file():
        pytest.skip(f"not there: {BUILT / 'evenkeel'}, configured with -DLIBTORCH_ROOT={TORCH}")
    if torch_of(BUILT).resolve() != TORCH.resolve():
        pytest.skip(f"{BUILT} was built with {torch_of(BUILT)}, not with {TORCH}")
    return BUILT / "evenkeel"


def set_up(torch):
    return subprocess.run([ROOT / "tools/setup", "gpu"], capture_output=True, text=True, timeout=600, env={**os.environ, "EVENKEEL_CUDA_TORCH": str(torch)})


def built_for_processors():
    if pathlib.Path(PROGRAM).resolve() != (ROOT / "build/evenkeel").resolve():
        pytest.skip(f"the program is {PROGRAM}, not build/evenkeel")
    torch = torch_of(ROOT / "build")
    if minor(torch) != minor(TORCH):
        pytest.skip(f"the program was built with torch {'.'.join(minor(torch))}, {TORCH} is of {'.'.join(minor(TORCH))}")
    done = set_up(TORCH)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "build/evenkeel-gpu"


@pytest.fixture(scope="module", params=[built_with_it, built_for_processors], ids=lambda way: way.__name__)
def program(request):
    if not (TORCH / "lib/libtorch_cuda.so").is_file():
        pytest.skip(f"not there: {TORCH / 'lib/libtorch_cuda.so'}")
    if pathlib.Path("/proc/driver/nvidia").exists():
        pytest.skip("there is an NVIDIA driver")
    file = request.param()

    def run(*arguments):
        return subprocess.run([file, *map(str, arguments)], capture_output=True, text=True, timeout=600, cwd=ROOT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    done = run("--version")
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.parametrize("command", [
    ["train", CONFIG, "--out", "{tmp}/run", "--set", "model.path={model}"],
    ["evaluate", "--model", "{model}", "--tasks", "builtin", "--limit", "1"],
    ["generate", "--model", "{model}", "--prompt", "Once", "--max-new-tokens", "1"],
    ["score", "--model", "{model}", "--input", "configs/tiny/model.json"],
    ["bertscore", "--model", "{model}", "--input", "configs/tiny/model.json"],
], ids=lambda command: command[0])
def test_a_gpu_that_is_asked_for_is_refused_in_one_line(program, tiny_model, tmp_path, command):
    words = [str(word).format(tmp=tmp_path, model=tiny_model) for word in command]
    done = program(*words, "--device", "cuda")
    one_line(done, "is cuda, but this machine shows none", "is there a driver? see nvidia-smi", "--device cpu")
    assert done.stderr.count("\n") == 1 and done.stdout == "" and not (tmp_path / "run").exists()


def test_a_gpu_with_a_number_is_refused_too(program, tiny_model):
    done = program("generate", "--model", tiny_model, "--prompt", "Once", "--device", "cuda:1")
    one_line(done, "--device is cuda:1, but this machine shows none")


def test_without_a_driver_the_processor_computes(program, tiny_model, tmp_path):
    few = settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, data__limit=30, evaluate__budgets="[1.0]")
    succeed("train", CONFIG, "--out", tmp_path / "expected", *few)
    expected = [line["loss"] for line in lines(tmp_path / "expected/rounds.jsonl")]
    for device in ("auto", "cpu"):
        done = program("train", CONFIG, "--out", tmp_path / device, *few, "--device", device)
        assert done.returncode == 0 and "CUDA" not in done.stderr, done.stderr
        model = tomllib.loads((tmp_path / device / "config.toml").read_text())["model"]
        assert (model["device"], model["engine"]) == ("cpu", "kernels")
        assert [line["loss"] for line in lines(tmp_path / device / "rounds.jsonl")] == pytest.approx(expected, abs=1e-3)


def test_operators_compute_on_the_processor(program, tiny_model, tmp_path):
    few = settings(model__path=tiny_model, model__engine="aten", train__rounds=1, evaluate__limit=1, data__limit=30, evaluate__budgets="[1.0]")
    done = program("train", CONFIG, "--out", tmp_path / "run", *few)
    assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "run/rounds.jsonl")[0]["loss"] > 0


def test_doctor_says_that_there_is_no_driver(program, tiny_model):
    done = program("doctor", "--config", CONFIG, *settings(model__path=tiny_model))
    assert done.returncode == 0, done.stderr
    (gpu,) = re.findall(r"^gpu +(.*)$", done.stdout, re.MULTILINE)
    assert gpu == "none: this machine shows none (is there a driver? see nvidia-smi)"


@pytest.mark.parametrize("library, version, says", [(None, "2.13.0", "is no CUDA build of torch"), ("libtorch_cuda.so", "1.13.1+cu117", "-DLIBTORCH_ROOT=")])
def test_the_set_up_takes_a_cuda_build_of_the_same_version_only(tmp_path, library, version, says):
    if not (ROOT / "build/CMakeCache.txt").is_file():
        pytest.skip(f"not there: {ROOT / 'build/CMakeCache.txt'}")
    (tmp_path / "lib").mkdir()
    (tmp_path / "version.py").write_text(f"__version__ = '{version}'\n")
    if library:
        (tmp_path / "lib" / library).touch()
    done = set_up(tmp_path)
    assert done.returncode == 1 and done.stdout.startswith("setup: ") and done.stdout.count("\n") == 1, done.stdout + done.stderr
    assert says in done.stdout and str(tmp_path) in done.stdout


@pytest.mark.parametrize("name", ["with blank", "with:colon", " torch"])
def test_a_path_that_the_dynamic_linker_splits_is_refused(tmp_path, name):
    """LD_PRELOAD would hold halves of paths. The program would start all the same, with its own libraries on the processor."""
    torch = tmp_path / name
    (torch / "lib").mkdir(parents=True)
    (torch / "lib/libtorch_cuda.so").touch()
    done = set_up(torch)
    assert done.returncode == 1 and done.stdout.startswith("setup: ") and done.stdout.count("\n") == 1, done.stdout + done.stderr
    assert f"{torch} has a blank or a colon in its path" in done.stdout


def test_a_project_in_a_path_with_a_blank_is_refused_before_anything_is_installed(tmp_path):
    project = tmp_path / "my project"
    (project / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools/setup", project / "tools/setup")
    done = subprocess.run([project / "tools/setup", "gpu"], capture_output=True, text=True, timeout=600,
                          env={name: value for name, value in os.environ.items() if name != "EVENKEEL_CUDA_TORCH"})
    assert done.returncode == 1 and f"setup: {project} has a blank or a colon in its path" in done.stdout, done.stdout + done.stderr
    assert [entry.name for entry in project.iterdir()] == ["tools"]


@pytest.mark.parametrize("name", ["plain", "it's", 'a"b', "a$HOME", "a`id`", "a\\b"])
def test_the_launcher_quotes_paths_for_the_shell(tmp_path, name):
    """A project and a torch below a folder of this name. The program prints what it was started with."""
    project, torch = tmp_path / name / "project", tmp_path / name / "torch"
    for folder in (project / "tools", project / "build", torch / "lib"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "tools/setup", project / "tools/setup")
    for library in ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so"):
        (torch / "lib" / library).touch()
    (torch / "version.py").write_text("__version__ = '2.13.0+cu130'\n")
    (project / "build/CMakeCache.txt").write_text(f"LIBTORCH_ROOT:PATH={torch}\n")
    program = project / "build/evenkeel"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$LD_PRELOAD" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run([project / "tools/setup", "gpu"], capture_output=True, text=True, timeout=600, env={**os.environ, "EVENKEEL_CUDA_TORCH": str(torch)})
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([project / "build/evenkeel-gpu", "one word"], capture_output=True, text=True, timeout=600).stdout.splitlines()
    assert said[0].split(":") == [f"{torch}/lib/{library}" for library in ("libc10.so", "libtorch_cpu.so", "libc10_cuda.so", "libtorch_cuda.so")]
    assert said[1] == "one word"
