"""Tests the key `model.cuda_kernels` on a GPU that the processor plays, with a driver and a compiler that run the kernels'
sources on the processor (tests/cuda_kernels): a run computes with the named kernels, and their absence is one line.
"""

import tomllib

import pytest

from test_graphs import few
from test_simulated_gpu import LIBRARY, losses, pytestmark, run  # noqa: F401
from tiny import CONFIG, one_line

DRIVER = LIBRARY.parent / "simulated_cuda"
FALLS_BACK = "[kernels] LibTorch's operators compute (model.cuda_kernels): "


@pytest.fixture
def driver(monkeypatch, tmp_path):
    monkeypatch.setenv("EVENKEEL_NVRTC", str(DRIVER))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("test_simulated_gpu.LIBRARY", f"{LIBRARY}:{DRIVER / 'libsimulated_cuda_driver.so'}")


def trained(tiny_model, out, kernels):
    """Trains on the simulated GPU. Returns the finished process."""
    words = few(tiny_model, model__cuda_kernels=f'"{kernels}"', model__graphs="off", train__rounds=1, evaluate__every=1, data__limit=8)
    return run("train", CONFIG, "--out", out, *words, "--device", "cuda")


def adapter(out):
    return (out / "adapter/adapter_model.safetensors").read_bytes()


def settled(out):
    return tomllib.loads((out / "config.toml").read_text())["model"]["cuda_kernels"]


def test_a_run_computes_with_the_kernels_that_it_names(tiny_model, tmp_path, driver):
    for kernels in ("none", "all", "swiglu,rows"):
        done = trained(tiny_model, tmp_path / kernels, kernels)
        assert done.returncode == 0 and "[kernels]" not in done.stderr, done.stderr
        assert settled(tmp_path / kernels) == kernels
        assert losses(tmp_path / kernels) == pytest.approx(losses(tmp_path / "none"), abs=1e-2)
    assert len({adapter(tmp_path / kernels) for kernels in ("none", "all", "swiglu,rows")}) == 3


def test_the_choice_is_all_where_the_kernels_can_be_compiled(tiny_model, tmp_path, driver):
    assert trained(tiny_model, tmp_path / "auto", "auto").returncode == 0
    assert settled(tmp_path / "auto") == "all"


def test_without_a_driver_operators_compute_or_the_run_is_refused(tiny_model, tmp_path):
    done = trained(tiny_model, tmp_path / "auto", "auto")
    assert done.returncode == 0 and done.stderr.count(FALLS_BACK) == 1, done.stderr
    assert settled(tmp_path / "auto") == "none"
    one_line(trained(tiny_model, tmp_path / "all", "all"), 'model.cuda_kernels is "all", but ', "auto or none computes without")


def test_a_processor_computes_without_them(tiny_model, tmp_path):
    words = few(tiny_model, model__cuda_kernels="auto")
    assert run("train", CONFIG, "--out", tmp_path / "run", *words).returncode == 0
    assert settled(tmp_path / "run") == "none"
