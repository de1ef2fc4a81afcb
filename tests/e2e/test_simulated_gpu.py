"""Tests every command on a GPU that the processor plays (tests/gpu): the paths for a GPU compute what the processor
computes, tensors are on the right device, the host waits for the GPU at most
once a step, and memory that runs out is one line.
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
import tomllib

import pytest

from test_device import curve, pretraining
from test_federation import Processes, free_port, keygen, node_arguments, wait_for
from test_output import tiny_encoder
from test_resume import expect_same_run
from test_served_nodes import TEMPLATE, config_of
from tiny import CONFIG, PROGRAM, ROOT, lines, nightly, one_line, settings, succeed

LIBRARY = pathlib.Path(PROGRAM).parent / "tests/libsimulated_gpu.so"
AT_EVERY_PUSH = {"fedit", "hetlora", "slimmable-moe", "ub-smoe"}  # the others take as long again
METHODS = [name if name in AT_EVERY_PUSH else pytest.param(name, marks=nightly)
           for name in (line.split()[0] for line in succeed("list", "methods").stdout.splitlines())]
pytestmark = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"not there: {LIBRARY} (LibTorch has CUDA itself)")


def environment(**variables):
    """Returns an environment whose programs have simulated GPUs: gpus, how many; mib, the memory of each; counts, a file."""
    names = {"gpus": "EVENKEEL_SIMULATED_GPUS", "mib": "EVENKEEL_SIMULATED_GPU_MIB", "counts": "EVENKEEL_SIMULATED_GPU_COUNTS"}
    return {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": str(LIBRARY), **{names[key]: str(value) for key, value in variables.items()}}


def start(*words, **variables):
    return subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(**variables))


def run(*words, **variables):
    process = start(*words, **variables)
    out, error = process.communicate(timeout=600)
    return subprocess.CompletedProcess(words, process.returncode, out, error)


def on_gpu(*words, **variables):
    done = run(*words, "--device", "cuda", **variables)
    assert done.returncode == 0, done.stderr
    return done


def losses(out):
    return [line["loss"] for line in lines(out / "rounds.jsonl")]


@pytest.fixture(scope="module")
def trained(tiny_model, tmp_path_factory):
    """Returns a run of UB-SMoE on a GPU."""
    out = tmp_path_factory.mktemp("gpu") / "run"
    on_gpu("train", CONFIG, "--out", out, *settings(model__path=tiny_model, evaluate__every=2))
    return out


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_on_a_gpu_as_on_the_processor(tiny_model, tmp_path, method):
    few = settings(model__path=tiny_model, method__name=method, evaluate__limit=1, model__compute_dtype="bfloat16", train__rounds=2)
    on_gpu("train", CONFIG, "--out", tmp_path / "gpu", *few)
    succeed("train", CONFIG, "--out", tmp_path / "processor", *few, "--set", "model.engine=aten")
    assert losses(tmp_path / "gpu") == pytest.approx(losses(tmp_path / "processor"), abs=5e-3)


def test_a_run_on_a_gpu_is_killed_and_resumed_to_the_same_bits(trained, tiny_model, tmp_path):
    out = tmp_path / "run"
    words = ["train", CONFIG, "--out", out, *settings(model__path=tiny_model, evaluate__every=2), "--device", "cuda"]
    process = start(*words)
    end = time.monotonic() + 600
    while len(lines(out / "rounds.jsonl")) < 1 and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and len(lines(out / "rounds.jsonl")) < 3
    done = run("train", CONFIG, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    expect_same_run(out, trained)


def test_two_ranks_with_a_gpu_each_train_to_the_same_bits(trained, tiny_model, tmp_path):
    words = ["train", CONFIG, "--out", tmp_path / "ranks", *settings(model__path=tiny_model, evaluate__every=2), "--ranks", 2]
    on_gpu(*words, gpus=2)
    expect_same_run(tmp_path / "ranks", trained)
    done = run(*words[:3], tmp_path / "one", *words[4:], "--device", "cuda", gpus=1)
    assert done.returncode == 1 and "which is GPU 1 for this process, allowed: 0 .. 0" in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=nightly), pytest.param(2, marks=nightly), 4])
def test_ranks_that_share_a_gpu_train_to_the_same_bits(trained, tiny_model, tmp_path, ranks):
    done = run("train", CONFIG, "--out", tmp_path / "ranks", *settings(model__path=tiny_model, evaluate__every=2), "--device", "cuda:0",
               "--ranks", ranks, gpus=1, mib=8192)
    assert done.returncode == 0, done.stderr
    expect_same_run(tmp_path / "ranks", trained)


def test_ranks_that_do_not_fit_a_gpu_together_are_refused(tiny_model, tmp_path):
    words = ["train", CONFIG, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1), "--device", "cuda:0", "--out"]
    one_line(run(*words, tmp_path / "ranks", "--ranks", 4, mib=3000), "on cuda:0 the run of 4 ranks needs about", "2.9 GiB are available (all of cuda:0",
             "of each of 4 ranks", "lower the number of ranks")
    assert not (tmp_path / "ranks").exists()
    done = run(*words, tmp_path / "one", mib=3000)
    assert done.returncode == 0, done.stderr
    apart = run(*words[:-2], "cuda", "--out", tmp_path / "apart", "--ranks", 4, gpus=4, mib=3000)
    assert apart.returncode == 0, apart.stderr


def test_doctor_plans_the_memory_of_ranks_that_share_a_gpu(tiny_model):
    def plan(device, ranks):
        words = ["doctor", "--config", CONFIG, *settings(model__path=tiny_model, model__device=device), "--ranks", ranks]
        done = run(*words, gpus=2, mib=3000)
        assert done.returncode == 0, done.stderr
        return done.stdout.split("memory of the GPU")[1]

    assert "does not fit" in plan("cuda:1", 4) and "CUDA's libraries and their workspaces of each of 4 ranks" in plan("cuda:1", 4)
    assert "fits: " in plan("cuda:1", 1) and "fits: " in plan("cuda", 4)


def test_a_run_trains_on_the_gpu_with_its_number(trained, tiny_model, tmp_path):
    words = ["train", CONFIG, "--out", tmp_path / "second", *settings(model__path=tiny_model, evaluate__every=2), "--device", "cuda:1"]
    done = run(*words, gpus=2)
    assert done.returncode == 0, done.stderr
    expect_same_run(tmp_path / "second", trained)


def test_generation_on_a_gpu_gives_the_text_of_the_processor(trained):
    words = ["generate", "--run", trained, "--prompt", "Once upon", "--max-new-tokens", 8]
    on_cpu = succeed(*words, "--device", "cpu")
    assert on_gpu(*words).stdout == on_cpu.stdout
    assert on_gpu(*words, "--beams", 3).stdout == succeed(*words, "--beams", 3, "--device", "cpu").stdout


def test_evaluation_on_a_gpu_gives_the_scores_of_the_processor(trained, tmp_path):
    words = ["evaluate", "--run", trained, "--limit", 4, "--budget", "0.5,1", "--predictions"]
    on_gpu(*words, tmp_path / "gpu.jsonl")
    succeed(*words, tmp_path / "cpu.jsonl", "--device", "cpu")
    ours, theirs = lines(tmp_path / "gpu.jsonl"), lines(tmp_path / "cpu.jsonl")
    assert len(ours) == len(theirs) > 20
    for own, other in zip(ours, theirs):
        assert own == other


def test_likelihoods_on_a_gpu_are_those_of_the_processor(tiny_model, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "once upon a time"}\n{"prompt": "one two", "completion": " three"}\n')
    words = ["score", "--model", tiny_model, "--input", tmp_path / "texts.jsonl", "--json"]
    ours, theirs = ([json.loads(line)["logprob"] for line in done.stdout.splitlines()] for done in (on_gpu(*words), succeed(*words)))
    assert len(ours) == 2 and ours == pytest.approx(theirs, abs=0.05)


def test_bertscore_on_a_gpu_is_that_of_the_processor(tmp_path):
    (tmp_path / "bert").mkdir()
    tiny_encoder(tmp_path / "bert")
    (tmp_path / "pairs.jsonl").write_text('{"candidate": "a b", "reference": "a c"}\n{"candidate": "c", "references": ["b", "a c b"]}\n')
    words = ["bertscore", "--model", tmp_path / "bert", "--layer", 1, "--input", tmp_path / "pairs.jsonl", "--json"]
    ours, theirs = ([json.loads(line)["f1"] for line in done.stdout.splitlines()] for done in (on_gpu(*words), succeed(*words)))
    assert len(ours) == 2 and ours == pytest.approx(theirs, abs=1e-4)


def test_alignment_on_a_gpu_is_that_of_the_processor(tiny_model, tmp_path):
    """Few tokens meet many experts, so that some experts are idle."""
    shape = json.loads((tiny_model / "config.json").read_text()) | {"num_experts": 48}
    (tmp_path / "config.json").write_text(json.dumps(shape))
    succeed("init", tmp_path / "config.json", "--out", tmp_path / "model")
    shutil.copy(tiny_model / "tokenizer.json", tmp_path / "model")
    on_gpu("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tmp_path / "model", train__rounds=1, evaluate__limit=1,
                                                                 evaluate__tasks="['builtin:values']"))
    words = ["pg-alignment", "--run", tmp_path / "run", "--limit", 1, "--json"]
    ours, theirs = ([json.loads(line) for line in done.stdout.splitlines()] for done in (on_gpu(*words), succeed(*words, "--device", "cpu")))
    assert len(ours) == len(theirs) == 3 and ours[-1]["compared"] > 10
    for own, other in zip(ours, theirs):
        assert own == pytest.approx(other, abs=1e-4)


def test_gradient_bias_on_a_gpu_is_that_of_the_processor(tiny_model, tmp_path):
    on_gpu("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1,
                                                                 evaluate__tasks="['builtin:values']"))
    words = ["gradient-bias", "--run", tmp_path / "run", "--limit", 1, "--json"]
    ours, theirs = ([json.loads(line) for line in done.stdout.splitlines()] for done in (on_gpu(*words), succeed(*words, "--device", "cpu")))
    assert len(ours) == len(theirs) and {one["top_k"] for one in ours} > {8}
    for own, other in zip(ours, theirs):
        names = {key for key, value in other.items() if isinstance(value, (int, float))}
        assert {key: own[key] for key in names} == pytest.approx({key: other[key] for key in names}, rel=1e-3, abs=1e-4)
        assert all(own[key] == other[key] for key in other.keys() - names)


def test_nodes_train_on_a_gpu(tiny_model, tmp_path, monkeypatch):
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path / "chat.jinja"}"')
    succeed("train", config, "--out", tmp_path / "local")
    keys, log, address = keygen(tmp_path, 2), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    with Processes() as processes:
        server = processes.start("serve", config, "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt",
                                 "--insecure", log=log)
        monkeypatch.setenv("LD_PRELOAD", str(LIBRARY))
        for i, key in enumerate(keys):
            rows = ["--data", tmp_path / f"site-{i}.jsonl", "--test", tmp_path / f"site-{i}-test.jsonl", "--device", "cuda"]
            processes.start(*node_arguments(key, tiny_model, address, *rows), log=tmp_path / f"site-{i}.log")
        assert wait_for(server, log) == 0, log.read_text()
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "local"), abs=1e-3)


def test_the_host_waits_for_the_gpu_at_most_once_a_step(tiny_model, tmp_path):
    def waits(epochs):
        out = tmp_path / f"run-{epochs}"
        few = settings(model__path=tiny_model, model__compute_dtype="bfloat16", train__rounds=1, train__local_epochs=epochs, evaluate__every=9,
                       train__batch_size=1, train__accumulation=1)
        on_gpu("train", CONFIG, "--out", out, *few, counts=tmp_path / f"counts-{epochs}")
        steps = sum(client["steps"] for client in lines(out / "rounds.jsonl")[0]["clients"])
        return steps, struct.unpack("5q", (tmp_path / f"counts-{epochs}").read_bytes())[1]

    (fewer, least), (more, most) = waits(1.0), waits(3.0)
    assert more >= fewer + 20
    assert 0 < (most - least) / (more - fewer) <= 1


def test_a_loss_that_is_not_finite_is_refused_with_its_step(tiny_model, tmp_path):
    """The host reads the loss of a step a step later. The last step of a round is read before its reply."""
    def error_of(name, rate, *words):
        few = settings(model__path=tiny_model, train__rounds=1, evaluate__every=9, train__optimizer__lr=rate, train__local_epochs=4.0,
                       method__name="fedit", model__compute_dtype="bfloat16")
        done = run("train", CONFIG, "--out", tmp_path / name, *few, *words)
        assert done.returncode == 1 and "the loss is" in done.stderr, done.stderr
        assert not lines(tmp_path / name / "rounds.jsonl")
        return done.stderr.strip().splitlines()[-1]

    for rate in ("1e6", "2e5"):
        assert error_of(f"gpu-{rate}", rate, "--device", "cuda") == error_of(f"processor-{rate}", rate, "--set", "model.engine=aten")


def test_pretraining_on_a_gpu_is_that_of_the_processor(tiny_model, tmp_path):
    """Losses of the kernels, of LibTorch's operators on the processor and of those on the GPU are within 1e-4."""
    file = pretraining(tmp_path, tiny_model)
    on_gpu("pretrain", file, "--out", tmp_path / "gpu", counts=tmp_path / "counts")
    succeed("pretrain", file, "--out", tmp_path / "operators", "--set", "model.engine=aten")
    succeed("pretrain", file, "--out", tmp_path / "kernels")
    gpu, operators, kernels = (curve(tmp_path / name) for name in ("gpu", "operators", "kernels"))
    assert len(gpu) > 12 and gpu == pytest.approx(operators, abs=1e-4) and gpu == pytest.approx(kernels, abs=1e-4)
    assert struct.unpack("5q", (tmp_path / "counts").read_bytes())[0] > 1000  # operators of the GPU
    model = tomllib.loads((tmp_path / "gpu/pretrain.toml").read_text())["model"]
    assert (model["device"], model["engine"]) == ("cuda", "aten")


def test_pretraining_on_a_gpu_goes_on_from_its_checkpoint_to_the_same_bits(tiny_model, tmp_path):
    file = pretraining(tmp_path, tiny_model)
    words = ["pretrain", file, "--set", "train.steps=40", "--out"]
    on_gpu(*words, tmp_path / "straight")
    process = start(*words, tmp_path / "broken", "--device", "cuda")
    end = time.monotonic() + 600
    while not list((tmp_path / "broken").glob("checkpoint-*.safetensors")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    assert process.returncode == 130 and "--device cuda --out" in error, error
    shutil.copytree(tmp_path / "broken", tmp_path / "moved")
    on_gpu(*words, tmp_path / "broken", "--resume")
    assert (tmp_path / "broken/model.safetensors").read_bytes() == (tmp_path / "straight/model.safetensors").read_bytes()
    assert "model.device or engine differs" in succeed(*words, tmp_path / "moved", "--resume").stderr
    assert curve(tmp_path / "moved") == pytest.approx(curve(tmp_path / "straight"), abs=1e-4)


def test_a_pretraining_that_does_not_fit_a_gpu_is_refused(tiny_model, tmp_path):
    done = run("pretrain", pretraining(tmp_path, tiny_model), "--out", tmp_path / "run", "--device", "cuda", mib=512)
    one_line(done, "on cuda:0 pre-training needs about", "0.5 GiB are available")
    assert not (tmp_path / "run").exists()
    done = run("pretrain", pretraining(tmp_path, tiny_model), "--out", tmp_path / "run", "--device", "cuda:1")
    one_line(done, "model.device is cuda:1")
    assert not (tmp_path / "run").exists()


def test_a_run_that_does_not_fit_a_gpu_is_refused(tiny_model, tmp_path):
    done = run("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model), "--device", "cuda", mib=4)
    one_line(done, "on cuda:0 the run needs about", "4 MiB are available")
    assert not (tmp_path / "run").exists()


def test_memory_of_a_gpu_that_runs_out_is_one_line(tiny_model, tmp_path):
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "once upon a time " * 60}) + "\n")
    words = ["score", "--model", tiny_model, "--input", tmp_path / "texts.jsonl", "--device", "cuda"]
    one_line(run(*words, mib=2), "the device's memory is full: CUDA out of memory", "lora.rank make it less")


def test_doctor_describes_the_gpu(tiny_model):
    done = run("doctor", "--config", CONFIG, *settings(model__path=tiny_model, model__device="cuda"), mib=2048)
    assert done.returncode == 0, done.stderr
    assert "cuda:0" in done.stdout and "2.0 GiB" in done.stdout
