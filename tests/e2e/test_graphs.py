"""Tests passes that are recorded and replayed (`model.graphs`) on a GPU that the processor plays: a run has the bits of
one whose recordings fail, the host starts far fewer operators, and a library that is missing or wrong is one line.
"""

import json
import os
import re
import struct
import subprocess
import tomllib

import pytest

from test_resume import ADAPTER, expect_same_run
from test_simulated_gpu import on_gpu, pytestmark, run  # noqa: F401
from tiny import CONFIG, ROOT, lines, one_line, settings

NO_LIBRARY = ROOT / "nowhere/libevenkeel_cuda_graphs.so"
FALLS_BACK = "[graphs] a pass cannot be recorded, so all operators are started one by one: "


def few(tiny_model, **more):
    return settings(**{"model__path": tiny_model, "model__compute_dtype": "bfloat16", "train__rounds": 2, "evaluate__limit": 1,
                       "evaluate__every": 2, **more})


def counted(path):
    return struct.unpack("5q", path.read_bytes())[0]


@pytest.mark.parametrize("method", ["ub-smoe", "smoe-llb", "flora", "fed-sb", "slimmable-moe"])
def test_a_run_that_replays_has_the_bits_of_the_padded_operators(tiny_model, tmp_path, monkeypatch, method):
    words = ["train", CONFIG, "--out"], few(tiny_model, method__name=method, train__batch_size=2, data__limit=100)
    replayed = on_gpu(*words[0], tmp_path / "replayed", *words[1], counts=tmp_path / "few")
    assert "[graphs]" not in replayed.stderr
    monkeypatch.setenv("EVENKEEL_MOST_GRAPHS", "1")  # that of the first trial
    eager = on_gpu(*words[0], tmp_path / "eager", *words[1], counts=tmp_path / "many")
    assert eager.stderr.count("[graphs]") == 1 and FALLS_BACK in eager.stderr and "EVENKEEL_MOST_GRAPHS is 1" in eager.stderr
    expect_same_run(tmp_path / "replayed", tmp_path / "eager")
    assert counted(tmp_path / "few") < counted(tmp_path / "many")  # of a step: tests/contract/method_operators_test.cpp


def test_a_replay_that_differs_from_its_operators_is_not_used(tiny_model, tmp_path, monkeypatch):
    words = few(tiny_model)
    on_gpu("train", CONFIG, "--out", tmp_path / "right", *words)
    monkeypatch.setenv("EVENKEEL_SIMULATED_GPU_GRAPHS", "broken")
    done = on_gpu("train", CONFIG, "--out", tmp_path / "broken", *words)
    assert done.stderr.count("[graphs]") == 1 and FALLS_BACK in done.stderr and "its replay differs from its operators" in done.stderr
    expect_same_run(tmp_path / "broken", tmp_path / "right")


def test_a_gpu_without_graphs_is_named(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("EVENKEEL_SIMULATED_GPU_GRAPHS", "0")
    done = run("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model, model__graphs="on"), "--device", "cuda")
    one_line(done, "cannot record graphs on this machine", "auto or off computes without")


def test_the_choice_is_recorded_with_the_run(tiny_model, tmp_path):
    for graphs, device, settled in (("auto", "cuda", "on"), ("off", "cuda", "off"), ("auto", "cpu", "off")):
        out = tmp_path / f"{graphs}-{device}"
        done = run("train", CONFIG, "--out", out, *few(tiny_model, model__graphs=graphs), "--device", device)
        assert done.returncode == 0, done.stderr
        assert tomllib.loads((out / "config.toml").read_text())["model"]["graphs"] == settled
        machine = json.loads((out / "manifest.json").read_text())["machine"]
        assert machine.get("gpu", {}).get("graphs") == (settled if device == "cuda" else None)


def test_a_run_without_graphs_is_near_one_with_them(tiny_model, tmp_path):
    curves = []
    for graphs in ("on", "off"):
        on_gpu("train", CONFIG, "--out", tmp_path / graphs, *few(tiny_model, model__graphs=graphs))
        curves.append([line["loss"] for line in lines(tmp_path / graphs / "rounds.jsonl")])
    assert curves[0] == pytest.approx(curves[1], abs=1e-2)


@pytest.fixture(scope="module")
def wrong_libraries(tmp_path_factory):
    """Returns libraries by what is wrong with them."""
    folder = tmp_path_factory.mktemp("libraries")

    def compiled(name, source):
        (folder / f"{name}.cpp").write_text(source)
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{ROOT}/src", folder / f"{name}.cpp", "-o", folder / name], check=True)
        return folder / name
    plugin = '#include "base/system/graph_plugin.h"\nextern "C" const evenkeel::GraphPlugin* evenkeel_graph_plugin() {{\n' \
             "  static const evenkeel::GraphPlugin plugin{{{}, \"{}\", nullptr, nullptr}};\n  return &plugin;\n}}\n"
    (folder / "text").write_text("no library\n")
    return {"missing": NO_LIBRARY, "text": folder / "text", "another": compiled("another", "int x = 0;\n"),
            "interface": compiled("interface", plugin.format(999, "2.13.0")), "torch": compiled("torch", plugin.format(1, "2.11.0"))}


WRONG = {"missing": ["there is no ", "`make gpu` builds it"], "text": ["cannot be loaded", "`make gpu`"],
         "another": ["is another library: it has no evenkeel_graph_plugin()", "`make gpu`"], "interface": ["has interface 999, needed: 1", "`make gpu`"],
         "torch": ["was built for torch 2.11.0, this program for", "`make gpu`"]}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_library_is_refused_where_graphs_are_on(tiny_model, tmp_path, monkeypatch, wrong_libraries, name):
    monkeypatch.setenv("EVENKEEL_GRAPHS_LIBRARY", str(wrong_libraries[name]))
    done = run("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model, model__graphs="on"), "--device", "cuda")
    said = one_line(done, 'model.graphs is "on", but ', wrong_libraries[name], *WRONG[name], "auto or off computes without")
    assert len(done.stderr.splitlines()) == 1 and said and not (tmp_path / "run").exists()


def test_without_a_library_a_run_goes_without_graphs_and_says_so(tiny_model, tmp_path, monkeypatch):
    on_gpu("train", CONFIG, "--out", tmp_path / "off", *few(tiny_model, model__graphs="off"))
    monkeypatch.setenv("EVENKEEL_GRAPHS_LIBRARY", str(NO_LIBRARY))
    done = on_gpu("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model))
    said = [line for line in done.stderr.splitlines() if "[graphs]" in line]
    assert len(said) == 1 and f"operators are started one by one (model.graphs): there is no {NO_LIBRARY}" in said[0]
    expect_same_run(tmp_path / "run", tmp_path / "off")


@pytest.mark.parametrize("words, says", [
    (["--set", "model.graphs=on"], ['model.graphs is "on", allowed: auto or off, where model.device is cpu']),
    (["--set", "model.graphs=yes"], ['model.graphs is "yes", allowed: auto, on, off']),
    (["--set", "model.graphs=on", "model.compute_dtype='float32'", "--device", "cuda"],
     ["products of experts in float32 wait for the host", 'model.compute_dtype = "bfloat16"', "auto or off"])])
def test_graphs_that_are_impossible_are_refused(tiny_model, tmp_path, words, says):
    done = run("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model), *words)
    one_line(done, *says)
    assert not (tmp_path / "run").exists()


def test_a_run_that_replays_goes_on_without_the_library_only_if_told_so(tiny_model, tmp_path, monkeypatch):
    out = tmp_path / "run"
    on_gpu("train", CONFIG, "--out", out, *few(tiny_model, train__rounds=1))
    monkeypatch.setenv("EVENKEEL_GRAPHS_LIBRARY", str(NO_LIBRARY))
    kept = [path for path in out.rglob("*") if path.suffix in (".jsonl", ".safetensors")]
    before = {path: path.read_bytes() for path in kept}
    words = ["train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2"]
    one_line(run(*words), 'the run records its passes (model.graphs = "on"), but there is no ', "--set model.graphs=off goes on without")
    assert len(before) > 2 and {path: path.read_bytes() for path in before} == before
    done = run(*words, "model.graphs=off")
    assert done.returncode == 0, done.stderr
    assert len(lines(out / "rounds.jsonl")) == 2
    done = run("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=3", "--device", "cpu")
    assert done.returncode == 0, done.stderr


def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(tiny_model, tmp_path):
    """A new process records anew, after a first pass by operators."""
    on_gpu("train", CONFIG, "--out", tmp_path / "straight", *few(tiny_model))
    on_gpu("train", CONFIG, "--out", tmp_path / "resumed", *few(tiny_model, train__rounds=1))
    done = run("train", CONFIG, "--out", tmp_path / "resumed", "--resume", "--set", "train.rounds=2")
    assert done.returncode == 0 and "[graphs]" not in done.stderr, done.stderr
    assert (tmp_path / "resumed" / ADAPTER).read_bytes() == (tmp_path / "straight" / ADAPTER).read_bytes()


def test_memory_for_recorded_passes_that_is_not_there_is_refused(tiny_model, tmp_path):
    done = run("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model, model__graphs="on", lora__rank=64), "--device", "cuda", mib=64)
    one_line(done, "on cuda:0 the run needs about", "are recorded passes, and what stays in place for them", "or --set model.graphs=off")
    assert not (tmp_path / "run").exists()


# The library for CUDA (plugins/cuda_graphs.cpp) -------------------------------------------------------------------------------------

def graph_library(out, **variables):
    torch = re.search(r"^LIBTORCH_ROOT:PATH=(.+)$", (ROOT / "build/CMakeCache.txt").read_text(), re.MULTILINE)[1]
    return subprocess.run([ROOT / "tools/graph_library", torch, out], capture_output=True, text=True, timeout=600, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def cuda_library(tmp_path_factory):
    if not (ROOT / "build/CMakeCache.txt").is_file():
        pytest.skip(f"not there: {ROOT / 'build/CMakeCache.txt'}")
    out = tmp_path_factory.mktemp("cuda") / "libevenkeel_cuda_graphs.so"
    done = graph_library(out)
    if "has no cuda_runtime_api.h" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return out


def test_the_library_for_cuda_compiles_and_exports_one_function(cuda_library):
    symbols = subprocess.run(["nm", "-D", "--defined-only", cuda_library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines() if " T " in line] == ["evenkeel_graph_plugin"]


def test_the_library_for_cuda_is_refused_where_torch_has_no_cuda(tiny_model, tmp_path, monkeypatch, cuda_library):
    monkeypatch.setenv("EVENKEEL_GRAPHS_LIBRARY", str(cuda_library))
    done = run("train", CONFIG, "--out", tmp_path / "run", *few(tiny_model, model__graphs="on"), "--device", "cuda")
    one_line(done, f'model.graphs is "on", but {cuda_library} cannot be loaded', "undefined symbol", "`make gpu`")


def test_headers_that_are_missing_are_named(tmp_path):
    if not (ROOT / "build/CMakeCache.txt").is_file():
        pytest.skip(f"not there: {ROOT / 'build/CMakeCache.txt'}")
    done = graph_library(tmp_path / "library", EVENKEEL_CUDA_INCLUDE=str(tmp_path))
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert f"{tmp_path} has no cuda_runtime_api.h" in done.stderr and "nvidia-cuda-runtime and nvidia-cuda-crt" in done.stderr
    assert not (tmp_path / "library").exists()
