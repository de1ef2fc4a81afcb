"""Tests that work that does not fit the machine is rejected early, and that a file that shrinks during a run never
changes a result.
"""

import json
import os
import re
import resource
import signal
import subprocess
import time

import pytest
from safetensors import safe_open

from hostile import refused
from measured import Measured
from tiny import CONFIG, PROGRAM, ROOT, lines, settings, started, succeed

MODEL_CONFIG = ROOT / "configs/tiny/model.json"



# --- numbers beyond the machine ---

@pytest.mark.parametrize("command, flag, value", [
    ("generate", "--max-new-tokens", 2**63 - 1), ("generate", "--beams", 10**12), ("generate", "--threads", 2**32 + 1),
    ("score", "--threads", 2**32 + 1), ("evaluate", "--limit", 10**15), ("evaluate", "--batch-size", 2**62),
    ("evaluate", "--max-new-tokens", 2**63 - 1), ("evaluate", "--threads", 2**32 + 1),
    ("bertscore", "--threads", 2**32 + 1), ("bertscore", "--layer", 2**62), ("pg-alignment", "--limit", 10**15), ("gradient-bias", "--limit", 10**15),
    ("train", "--threads", 2**32 + 1)])
def test_a_flag_beyond_its_bound_is_rejected_with_the_bound(tiny_model, tmp_path, command, flag, value):
    rest = {"generate": ["--model", tiny_model, "--prompt", "x"], "score": ["--model", tiny_model, "--input", "x"],
            "evaluate": ["--model", tiny_model, "--tasks", "builtin"], "pg-alignment": ["--run", tmp_path], "gradient-bias": ["--run", tmp_path],
            "bertscore": ["--model", tiny_model, "--input", "x"], "train": [CONFIG, "--out", tmp_path / "run"]}
    refused(command, *rest[command], flag, value, says=[flag, value, "allowed: ", "up to "])


def test_caches_larger_than_memory_are_rejected_before_allocation(tiny_model):
    prompts = [word for i in range(3000) for word in ("--prompt", f"{i}")]
    refused("generate", "--model", tiny_model, *prompts, "--beams", 1024, "--max-new-tokens", 900,
            says=["generating needs about ", "GiB", "--beams"])


def test_a_run_that_does_not_fit_is_rejected_before_its_weights_are_read(tiny_model, tmp_path):
    line = refused("train", CONFIG, "--out", tmp_path / "run",
                   *settings(model__path=tiny_model, train__batch_size=65536),
                   says=["the run needs about ", "are available", "lower train.batch_size"])
    assert len(line) <= 500 and not (tmp_path / "run/manifest.json").exists()


def test_a_limit_of_the_address_space_is_respected(tiny_model, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    refused("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, train__batch_size=3000),
            preexec_fn=limit, says=["the run needs about ", "address space (ulimit -v)"])


# --- doctor ---

def test_doctor_reports_the_memory_of_a_run_and_which_setting_to_lower(tiny_model):
    small = ["doctor", "--config", CONFIG, *settings(model__path=tiny_model)]
    out = succeed(*small).stdout
    for word in ("micro-batch", "adapters", "in all", "available", "mapped files", "fits"):
        assert word in out
    assert "does not fit" in succeed(*small, *settings(train__batch_size=65536)).stdout
    refused("doctor", "--set", "train.batch_size=1", says=["--set goes with --config"])


def foreseen_time_and_disk(*words):
    """Seconds, and bytes that stay."""
    said = succeed("doctor", *words).stdout.split(": time and disk\n")[1]
    time, unit, disk, size = re.search(r"time +about ([\d:]+) (s|min|h), measured here\ndisk +about ([\d.]+) ([KMG]iB), and [\d.]+ [KMG]iB while it "
                                       r"runs, in ", said).groups()
    whole, _, sixtieth = time.partition(":")
    seconds = (int(whole) + int(sixtieth or 0) / 60) * {"s": 1, "min": 60, "h": 3600}[unit]
    return seconds, float(disk) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[size]


def processor_seconds():
    """Returns the processor time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_doctor_foresees_time_and_disk_of_a_run(tiny_model, tmp_path):
    words = settings(model__path=tiny_model, method__name="fedit", train__rounds=6, evaluate__every=2, lora__rank=16, lora__alpha=16)
    seconds, disk = foreseen_time_and_disk("--config", CONFIG, *words, *settings(output__dir=f"'{tmp_path}/run'"))
    assert not (tmp_path / "run").exists()
    begin, processor = time.monotonic(), processor_seconds()
    started("train", CONFIG, "--out", tmp_path / "run", *words)
    took, processor = time.monotonic() - begin, processor_seconds() - processor
    there = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    # The speed is measured for half a second per K, and other work may begin or end before the run: on a busy machine the
    # run takes longer than its processor time. The estimate of the disk leaves out records, reports and the larger state
    # of some methods, and counts each adapter at its full size.
    assert 0.2 * processor < seconds < 5 * took, (processor, seconds, took)
    assert 0.4 * there < disk < 2.5 * there, (disk, there)
    longer, more = foreseen_time_and_disk("--config", CONFIG, *words, *settings(train__rounds=1000, evaluate__keep_best="true"))
    # 1,000 rounds for 6, where most of 6 rounds may be the start; keep_best stores a second adapter and its round.
    assert longer > 20 * seconds and 1.5 * disk < more < 2.5 * disk
    huge = succeed("doctor", "--config", CONFIG, *words, *settings(train__batch_size=65536)).stdout
    assert "not measured: the run does not fit" in huge and "disk    about" in huge


def federation_of_two(folder, model_folder):
    """A config as a server has it: the clients' rows are at their nodes."""
    (folder / "two.toml").write_text(f"""name = "two"
model = {{ path = "{model_folder}", compute_dtype = "float32" }}
data = {{ task = "files", files = {{ score = "choice", options = ["left", "right"] }} }}
clients.client = [{{ name = "north", data = "rows", budget = 1.0 }}, {{ name = "hill", data = "rows", test = "test", budget = 0.125 }}]
method = {{ name = "flora" }}
lora = {{ rank = 6, alpha = 6 }}
train = {{ rounds = 3, batch_size = 4, accumulation = 1 }}
""")
    return folder / "two.toml"


def test_doctor_plans_a_federation_without_the_rows_of_its_nodes(tiny_model, tmp_path):
    config = federation_of_two(tmp_path, tiny_model)
    refused("doctor", "--config", config, says=["rows is not there", "--serve plans the federation"])
    said = succeed("doctor", "--config", config, "--serve").stdout
    for words in ("memory of the server at the worst moment", "available (", "memory of the largest node, at most, with rows of ",
                  "the server scores no rows itself", "a round takes as long as its slowest node", "disk    server: about ", "not known here: "):
        assert words in said, (words, said)
    each = {float(budget): (float(down), float(up)) for budget, down, up in
            re.findall(r"^ +1 +([\d.]+) +\d+ +\d+ \| +([\d.]+) +([\d.]+)  each$", said, re.MULTILINE)}
    in_all = [float(value) for value in re.search(r" +2 in a round +\| +([\d.]+) +([\d.]+)  in all", said).groups()]
    for name, rows in (("rows", 5), ("test", 3)):
        (tmp_path / name).write_text("".join(json.dumps({"prompt": f"turn {i}", "completion": "left"}) + "\n" for i in range(rows)))
    succeed("train", config, "--out", tmp_path / "run", cwd=tmp_path)
    rounds = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert set(each) == {1.0, 0.125} and max(round_["bytes_up"] for round_ in rounds) / 2**20 <= in_all[1] + 0.005
    assert min(round_["bytes_up"] for round_ in rounds) / 2**20 >= 0.7 * in_all[1], (rounds, said)
    assert sum(up for _, up in each.values()) == pytest.approx(in_all[1], abs=0.02)


def test_doctor_measures_what_the_server_of_a_federation_scores(tiny_model):
    said = succeed("doctor", "--config", CONFIG, "--serve", *settings(model__path=tiny_model, evaluate__limit=2)).stdout
    assert re.search(r"the server scores [\d,]+ rows itself, in all its evaluations: about [\d:]+ (s|min|h), measured here", said), said
    federated = succeed("doctor", "--config", CONFIG, "--serve",
                        *settings(model__path=tiny_model, evaluate__limit=2, method__name="fed-sb")).stdout
    assert "rows itself, in all its evaluations: not measured, the method begins with the nodes' rows" in federated


@pytest.mark.parametrize("more, says", [
    (["--model", "x"], "--serve goes with --config alone"), (["--client-profile", "p.toml"], "--serve goes with --config alone")])
def test_doctor_plans_a_federation_of_a_config_only(more, says, tmp_path):
    refused("doctor", "--serve", says=["--serve goes with --config alone"])
    refused("doctor", "--config", CONFIG, "--serve", *more, says=[says])
    refused("doctor", "--config", ROOT / "configs/paper/small/rho.toml", "--serve", says=["is a study"])


@pytest.mark.parametrize("changes", [
    {"train__batch_size": 48, "method__name": '"fedit"'}, {"lora__rank": 64, "lora__alpha": 64}])
def test_the_memory_estimate_is_an_upper_bound(tiny_model, tmp_path, changes):
    words = settings(model__path=tiny_model, train__rounds=1, **changes)
    table = succeed("doctor", "--config", CONFIG, *words).stdout
    foreseen = float(next(line for line in table.splitlines() if line.endswith("  in all")).split()[0]) * 2**30
    run = Measured("train", CONFIG, "--out", tmp_path / "run", *words, threads=1)
    run.finish()
    print(f"{changes}: foreseen {foreseen / 2**20:.0f} MiB, measured {run.anonymous / 2**20:.0f} MiB anonymous, "
          f"ratio {foreseen / run.anonymous:.2f}")
    assert foreseen >= run.anonymous


# --- init ---

def test_init_has_one_tensor_in_memory_at_a_time(tmp_path):
    config = json.loads(MODEL_CONFIG.read_text()) | {"hidden_size": 256, "intermediate_size": 256, "vocab_size": 8000,
                                                     "num_experts": 64, "num_hidden_layers": 8}
    (tmp_path / "model.json").write_text(json.dumps(config))
    made = Measured("init", tmp_path / "model.json", "--out", tmp_path / "model", threads=1)
    made.finish()
    size = (tmp_path / "model/model.safetensors").stat().st_size
    assert size > 4e8 and made.anonymous < size / 2  # half of the bound is the program itself
    with safe_open(tmp_path / "model/model.safetensors", "np") as file:
        assert len(file.keys()) == 3 + 8 * (9 + 3 * 64)


def test_a_killed_init_does_not_block_the_next(tmp_path):
    config = json.loads(MODEL_CONFIG.read_text()) | {"hidden_size": 512, "vocab_size": 8000, "num_experts": 64}
    (tmp_path / "model.json").write_text(json.dumps(config))
    arguments = ["init", tmp_path / "model.json", "--out", tmp_path / "model"]
    killed = Measured(*arguments, threads=1)
    assert not killed.wait(until=lambda: list(tmp_path.glob("model.part/*")))
    killed.process.kill()
    killed.process.communicate()
    assert not (tmp_path / "model").exists()
    succeed(*arguments)
    succeed("init", tmp_path / "model.json", "--out", tmp_path / "again")
    assert ((tmp_path / "model/model.safetensors").read_bytes() ==
            (tmp_path / "again/model.safetensors").read_bytes())
    assert {path.name for path in tmp_path.iterdir()} == {"model.json", "model", "again"}


def test_init_keeps_a_part_folder_that_it_did_not_make(tmp_path):
    (tmp_path / "model.part").mkdir()
    (tmp_path / "model.part/thesis").write_text("mine")
    refused("init", MODEL_CONFIG, "--out", tmp_path / "model", says=[tmp_path / "model.part", "not empty"], untouched=tmp_path)


def test_init_writes_where_a_link_leads(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("disk", "missing"):
        (tmp_path / f"to-{name}").symlink_to(name)
        succeed("init", MODEL_CONFIG, "--out", tmp_path / f"to-{name}")
        assert (tmp_path / f"to-{name}").is_symlink() and (tmp_path / name / "model.safetensors").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "missing", "to-disk", "to-missing"}


def test_init_checks_the_free_disk_space_first(tmp_path):
    config = json.loads(MODEL_CONFIG.read_text()) | {"vocab_size": 2**28, "hidden_size": 2**16}
    (tmp_path / "model.json").write_text(json.dumps(config))
    refused("init", tmp_path / "model.json", "--out", tmp_path / "model", says=["the model needs", "GiB", "are free"])
    assert {path.name for path in tmp_path.iterdir()} == {"model.json"}


# --- a model file that changes under a run ---

def start(out, model_folder):
    return subprocess.Popen([PROGRAM, "train", str(CONFIG), "--out", str(out),
                             *settings(model__path=model_folder, train__rounds=40)],
                            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


# Nearly the whole file is cut off, or less than a page, which reads as zeros
@pytest.mark.parametrize("left", [4096, -100])
def test_truncating_the_model_during_training_ends_the_run_at_its_last_commit(model, tmp_path, left):
    out, weights = tmp_path / "run", model / "model.safetensors"
    whole = weights.read_bytes()
    process = start(out, model)
    wait_for(lambda: lines(out / "rounds.jsonl"))
    os.truncate(weights, left if left > 0 else len(whole) + left)
    error = process.communicate(timeout=120)[1].strip().splitlines()[-1]
    assert process.returncode == 1 and "[io] " in error and "model.safetensors" in error, error
    assert "became shorter" in error or "was changed while it was in use" in error
    committed = lines(out / "rounds.jsonl")
    refused("train", CONFIG, "--out", out, "--resume", says=["model.safetensors", "has changed"])
    weights.write_bytes(whole)
    resumed = subprocess.Popen([PROGRAM, "train", str(CONFIG), "--out", str(out), "--resume"], cwd=ROOT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: len(lines(out / "rounds.jsonl")) > len(committed))
    resumed.send_signal(signal.SIGINT)
    assert resumed.wait(timeout=120) == 130
    assert lines(out / "rounds.jsonl")[:len(committed)] == committed
