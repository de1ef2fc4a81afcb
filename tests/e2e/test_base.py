"""Tests storage and arithmetic of the frozen base: kernels, threads, an int8 base."""

import hashlib
import json
import os
import shutil
import tomllib

import pytest

from measured import Measured
from test_train import train
from tiny import CONFIG, ROOT, evenkeel, settings, started, succeed

SHORT = dict(train__rounds=1, evaluate__limit=1, evaluate__budgets=[1.0])
LISTS = ("expert_forward", "expert_backward", "linear_forward", "linear_backward")


def adapter(out):
    return hashlib.sha256((out / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()


def trained(model, out, *more, **changes):
    train(model, out, *more, **SHORT, **changes)
    return adapter(out)


def test_threads_do_not_change_the_bits(tiny_model, tmp_path):
    one, *several = (trained(tiny_model, tmp_path / f"threads-{n}", threads=n, model__dtype="bfloat16") for n in (1, 2, 3))
    assert several == [one, one]


def test_more_threads_than_processors_give_a_warning_and_the_same_bits(tiny_model, tmp_path):
    processors = len(os.sched_getaffinity(0))
    alone, beside = tmp_path / "alone", tmp_path / "beside"
    quiet = train(tiny_model, alone, threads=1, **SHORT)
    warned = train(tiny_model, beside, threads=processors, clients__parallel=2, **SHORT)
    assert f"clients.parallel 2 x threads {processors} = {2 * processors} threads" in warned.stderr
    assert "clients.parallel" not in quiet.stderr
    assert f"this machine has {processors} processors: slower than with threads = {max(1, processors // 2)}" in warned.stderr
    assert adapter(alone) == adapter(beside)


def test_listed_kernels_change_the_bits_and_are_stored_with_the_run(tiny_model, tmp_path):
    own = trained(tiny_model, tmp_path / "own", model__dtype="bfloat16")
    for changed in LISTS:
        kernels = {f"model__products__{key}": [("widen" if key == changed else "own")] * 8 for key in LISTS}
        out = tmp_path / changed
        other = trained(tiny_model, out, model__dtype="bfloat16", model__compute_dtype="auto", **kernels)
        # With sums of 32 terms, both kernels add in the same order
        assert other != own or changed == "linear_forward", changed
        model = tomllib.loads((out / "config.toml").read_text())["model"]
        assert model["compute_dtype"] == "measured"
        assert model["products"] == {key: kernels[f"model__products__{key}"] for key in LISTS}
        succeed("train", CONFIG, "--out", out, "--resume")


def test_an_int8_base_is_stored_with_the_run_and_built_once(tiny_model, tmp_path):
    stored = trained(tiny_model, tmp_path / "stored")
    first = trained(tiny_model, tmp_path / "first", model__base_format="int8")
    cache = tmp_path / ".evenkeel-cache"
    files = {file.name: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert sorted(name.rpartition(".")[2] for name in files) == ["json", "safetensors"]
    assert first != stored
    assert trained(tiny_model, tmp_path / "second", model__base_format="int8") == first
    assert {file.name: file.stat().st_mtime_ns for file in cache.iterdir()} == files
    assert trained(tiny_model, tmp_path / "third", model__base_format="int8", model__base_cache=str(tmp_path / "own")) == first
    assert sorted(file.name for file in (tmp_path / "own").iterdir()) == sorted(files)
    whole = next(cache.glob("*.safetensors")).read_bytes()
    next(cache.glob("*.safetensors")).write_bytes(whole[:-3] + b"abc")
    out = tmp_path / "fourth"
    done = train(tiny_model, out, model__base_format="int8", **SHORT)
    assert "made again" in done.stderr
    assert adapter(out) == first
    assert next(cache.glob("*.safetensors")).read_bytes() == whole


def caches(folder):
    return sorted(str(file.relative_to(folder)) for file in folder.rglob(".evenkeel-cache"))


def test_an_int8_base_lies_beside_a_run_however_its_folder_is_written(tiny_model, tmp_path):
    plain = trained(tiny_model, tmp_path / "plain", model__base_format="int8")
    out = f"{tmp_path}/slash/"
    train(tiny_model, out, **SHORT, model__base_format="int8")
    assert adapter(tmp_path / "slash") == plain
    succeed("evaluate", "--run", out)
    assert started("evaluate", "--run", ".", cwd=tmp_path / "slash").returncode == 0
    assert caches(tmp_path) == [".evenkeel-cache"]


INT8_STUDY = """[study]
base = "{config}"
seeds = [1]
set = ["model.path='{model}'", "model.base_format='int8'", "train.rounds=1", "evaluate.limit=1", "evaluate.budgets=[1.0]"]
[[study.arm]]
name = "fedit"
set = ["method.name='fedit'"]
[[study.arm]]
name = "ffa-lora"
set = ["method.name='ffa-lora'"]
"""


def test_an_int8_study_shares_a_base_and_goes_on_after_it_was_moved(tiny_model, tmp_path):
    first, then = tmp_path / "first", tmp_path / "then"
    first.mkdir(), then.mkdir()
    (tmp_path / "int8.toml").write_text(INT8_STUDY.format(config=CONFIG, model=tiny_model))
    words = ["study", tmp_path / "int8.toml", "--out"]
    dry = started(*words, f"{first}/s/", "--dry-run")
    assert dry.returncode == 0 and not (first / "s").exists(), dry.stderr
    done = started(*words, f"{first}/s/", "--only", "fedit:1")
    assert done.returncode == 0, done.stderr
    assert caches(first) == [".evenkeel-cache"]
    (first / "s").rename(then / "s")
    shutil.rmtree(first)
    done = started(*words, then / "s", "--resume")
    assert done.returncode == 0, done.stderr
    succeed("evaluate", "--run", then / "s/fedit/seed-1")
    assert caches(tmp_path) == ["then/.evenkeel-cache"] and not first.exists()


@pytest.fixture(scope="module")
def wide_model(tiny_model, tmp_path_factory):
    """Creates a model whose expert and attention weights have at least 2^20 numbers, the minimum that is measured. It
    has the tiny model's tokenizer.
    """
    folder = tmp_path_factory.mktemp("wide")
    shape = json.loads((ROOT / "configs/tiny/model.json").read_text())
    shape |= dict(hidden_size=1024, intermediate_size=1088, num_hidden_layers=1, num_key_value_heads=4, num_experts=3,
                  num_experts_per_tok=2)
    (folder / "shape.json").write_text(json.dumps(shape))
    succeed("init", folder / "shape.json", "--out", folder / "model", "--dtype", "bfloat16")
    for file in tiny_model.glob("token*"):
        shutil.copy(file, folder / "model")
    return folder / "model"


def test_the_run_uses_the_kernels_that_auto_measures_over_an_int8_base(wide_model, tmp_path):
    few = dict(model__base_format="int8", data__limit=20, clients__budgets=[0.5, 1.0, 0.5, 1.0, 0.5])
    own = trained(wide_model, tmp_path / "own", model__compute_dtype="float32", **few)
    dot = trained(wide_model, tmp_path / "dot", model__compute_dtype="bfloat16", **few)
    tile = trained(wide_model, tmp_path / "tile", model__compute_dtype="measured", **few,
                   **{f"model__products__{key}": ["tile"] * 8 for key in LISTS})
    assert len({own, dot, tile}) == 3
    measured = trained(wide_model, tmp_path / "auto", model__compute_dtype="auto", **few)
    model = tomllib.loads((tmp_path / "auto/config.toml").read_text())["model"]
    everywhere = {"float32": "own", "bfloat16": "dot"}  # a single kernel is written as its arithmetic, without lists
    listed = {} if model["compute_dtype"] in everywhere else {f"model__products__{key}": model["products"][key] for key in LISTS}
    kernels = {kernel for kernels in listed.values() for kernel in kernels} or {everywhere[model["compute_dtype"]]}
    assert kernels <= {"own", "dot", "tile"}, "the others are for 16 bits"
    assert (measured == own) == (kernels == {"own"})
    assert measured == dot or kernels != {"dot"}
    assert measured == tile or kernels != {"tile"}
    again = "auto" if listed else model["compute_dtype"]
    assert trained(wide_model, tmp_path / "again", model__compute_dtype=again, **few, **listed) == measured


def test_building_an_int8_base_releases_the_pages_of_the_checkpoint(tiny_model, tmp_path):
    """The pages of a 400 MB checkpoint and of the new file are released during writing. Keeping them would take 95 MiB
    more.
    """
    shape = json.loads((ROOT / "configs/tiny/model.json").read_text())
    shape |= dict(hidden_size=512, intermediate_size=512, num_hidden_layers=4, num_experts=64)
    (tmp_path / "shape.json").write_text(json.dumps(shape))
    model = tmp_path / "model"
    succeed("init", tmp_path / "shape.json", "--out", model, "--dtype", "bfloat16")
    for file in tiny_model.glob("token*"):
        shutil.copy(file, model)
    stored = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    assert stored > 400e6

    def resident(out):
        run = Measured("train", CONFIG, "--out", out, *settings(model__path=model, model__base_format="int8", model__dtype="checkpoint",
                                                                 data__limit=4, clients__count=2, clients__budgets=[1.0, 1.0], **SHORT))
        run.finish()
        return run.resident

    making, made = resident(tmp_path / "making"), resident(tmp_path / "made")
    assert making < made + stored / 16, (making, made, stored)


def test_an_int8_base_rejects_another_dtype(tiny_model, tmp_path):
    done = evenkeel("train", CONFIG, "--out", tmp_path / "run",
                    *settings(model__path=tiny_model, model__base_format="int8", model__dtype="float32"))
    assert done.returncode == 1
    assert "model.dtype" in done.stderr and "base_format" in done.stderr
