"""Tests that stored data is checked before it is used, and that nothing is removed before."""

import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, sealed, settings, started, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
STATE = "checkpoint/round-2/state.safetensors"


def quick(model_folder, **changes):
    return settings(model__path=model_folder, train__rounds=2, evaluate__limit=1, evaluate__budgets="[1.0]",
                    evaluate__every=1, evaluate__tasks='["builtin:facts"]', **changes)


def start(*words):
    return subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def resume(out, *more):
    return evenkeel("train", CONFIG, "--out", out, "--resume", *more)


@pytest.fixture(scope="module")
def finished(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "finished"
    succeed("train", CONFIG, "--out", out, *quick(tiny_model))
    return out


@pytest.fixture(scope="module")
def half_done(tiny_model, tmp_path_factory):
    """Returns a run that was killed in its second round, after the first upload."""
    out = tmp_path_factory.mktemp("runs") / "half-done"
    process = start("train", CONFIG, "--out", out, *quick(tiny_model))
    wait_for(lambda: list(out.glob("checkpoint/uploads-2/*.json")))
    process.kill()
    process.communicate()
    return out


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def content(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            for path in folder.rglob("*")}


def flip(file, bit):
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def commands(out, tmp):
    return {"resume": ["train", CONFIG, "--out", out, "--resume"],
            "export": ["export", "--run", out, "--out", tmp / "exported"],
            "evaluate": ["evaluate", "--run", out, "--tasks", "builtin:facts", "--limit", "1"],
            "gradient-bias": ["gradient-bias", "--run", out, "--limit", "1"],
            "pg-alignment": ["pg-alignment", "--run", out, "--limit", "1"],
            "report": ["report", out]}


EVERYBODY = ["resume", "export", "evaluate", "gradient-bias", "pg-alignment", "report"]
READERS = {"manifest.json": EVERYBODY, "config.toml": EVERYBODY, "partition.json": ["resume"],
           "rounds.jsonl": ["resume", "report"], "evaluations.jsonl": ["resume", "report"],
           **{f"checkpoint/{file}": EVERYBODY[:5] for file in (
               "commit.json", "round-2/commit.json", "round-2/state.safetensors", "round-2/memory.safetensors")}}


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    assert (out / STATE).read_bytes() == (reference / STATE).read_bytes()
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(out / records)) == without_seconds(lines(reference / records))
    assert set(content(out)) == set(content(reference))


# --- damage ---

def test_every_file_of_a_run_has_a_reader(finished):
    known = {*READERS, "report.html", "log.txt", "checkpoint", "adapter", "checkpoint/round-1", "checkpoint/round-2"}
    assert {name for name in content(finished)
            if not name.startswith(("adapter/", "checkpoint/round-1/"))} == known


@pytest.mark.parametrize("name", READERS)
def test_readers_detect_a_flipped_bit_and_change_nothing(run, tmp_path, name):
    clock = random.Random(name)
    bits = 8 * (run / name).stat().st_size
    for reader in READERS[name]:
        for bit in {0, bits - 6, clock.randrange(bits)} if reader == "resume" else {clock.randrange(bits)}:
            flip(run / name, bit)
            before = content(run)
            said = one_line(evenkeel(*commands(run, tmp_path)[reader]), name.rsplit("/", 1)[-1])
            assert content(run) == before, (reader, bit, said)
            flip(run / name, bit)
    assert not (tmp_path / "exported").exists()


def test_the_error_names_the_last_intact_round_and_the_flag_recovers_the_same_bits(run, finished):
    flip(run / STATE, 4001)
    assert "--resume --from-round 1" in one_line(resume(run), "round 1 is whole", "nothing was changed")
    assert resume(run, "--from-round", 1).returncode == 0
    expect_same_run(run, finished)


def test_a_missing_or_older_commit_marker_destroys_nothing(run, finished):
    marker = run / "checkpoint/commit.json"
    text = marker.read_text()
    for damage in ("", "{}", text.replace('"round":2', '"round":1', 1), text[:-9], None):
        marker.write_text(damage) if damage is not None else marker.unlink()
        before = content(run)
        one_line(resume(run), "commit.json", "--from-round 2")
        assert content(run) == before
    one_line(resume(run, "--from-round", 3), "--from-round is 3", "allowed", "2, 1, 0")
    assert resume(run, "--from-round", 2).returncode == 0
    expect_same_run(run, finished)


def test_a_damaged_upload_is_computed_again(half_done, finished, tmp_path):
    for kind in (".upload.safetensors", ".json"):
        out = shutil.copytree(half_done, tmp_path / kind)
        damaged = sorted(out.glob(f"checkpoint/uploads-2/*{kind}"))[0]
        flip(damaged, 8 * damaged.stat().st_size // 2)
        done = resume(out)
        assert done.returncode == 0, done.stderr
        warning = [line for line in done.stderr.splitlines() if "made again" in line]
        assert len(warning) == 1 and str(damaged) in warning[0], done.stderr
        expect_same_run(out, finished)


def test_a_folder_in_place_of_a_file_is_reported_in_one_line(run, tmp_path):
    for name, readers in READERS.items():
        data = (run / name).read_bytes()
        (run / name).unlink()
        (run / name).mkdir()
        for reader in readers[:1] if name != "rounds.jsonl" else readers:
            one_line(evenkeel(*commands(run, tmp_path)[reader]), name)
        (run / name).rmdir()
        (run / name).write_bytes(data)


def test_values_of_the_wrong_type_name_the_file_before_training(run, tmp_path):
    def with_changes(name, reader, **changes):
        text = (run / name).read_text()
        first, *rest = text.splitlines() if name.endswith("jsonl") else [text]
        (run / name).write_text("\n".join([sealed({**json.loads(first), **changes}), *rest]) + "\n")
        one_line(evenkeel(*commands(run, tmp_path)[reader]), name)
        (run / name).write_text(text)
    with_changes("manifest.json", "resume", files=7)
    with_changes("manifest.json", "resume", files=[{"path": 3}])
    with_changes("manifest.json", "resume", request={})
    with_changes("manifest.json", "evaluate", config=[])
    with_changes("manifest.json", "report", format="new")
    with_changes("checkpoint/commit.json", "resume", round="2")
    with_changes("checkpoint/commit.json", "export", files={"state.safetensors": 5})
    with_changes("checkpoint/commit.json", "export", record=None)
    with_changes("rounds.jsonl", "resume", round=[1])
    with_changes("rounds.jsonl", "report", loss="low")
    with_changes("evaluations.jsonl", "resume", round={})
    with_changes("evaluations.jsonl", "report", task=3)
    with_changes("partition.json", "resume", clients=[])


# --- a state with a valid checksum and invalid content ---

def reseal(run):
    """Recomputes the checksums of the second round, as a program would that wrote these files."""
    folder = run / "checkpoint/round-2"
    commit = json.loads((folder / "commit.json").read_text())
    for name in commit["files"]:
        data = (folder / name).read_bytes()
        commit["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    for file in (folder / "commit.json", run / "checkpoint/commit.json"):
        file.write_text(sealed(commit) + "\n")


def rewrite_state(run, change):
    """Changes the tensors of the state, {name: (dtype, shape, bytes)}, and writes them."""
    data = (run / STATE).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    tensors = {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
               for name, entry in header.items() if name != "__metadata__"}
    change(tensors)
    header, body = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    (run / STATE).write_bytes(struct.pack("<Q", len(text)) + text + body)
    reseal(run)


def site_of(tensors, factor="b"):
    return next(name for name in tensors if name.startswith("adapter/") and name.endswith(f"q_proj/{factor}"))


def test_a_state_with_nan_is_rejected_with_the_tensors_name(run, tmp_path):
    def change(tensors):
        dtype, shape, data = tensors[site_of(tensors)]
        tensors[site_of(tensors)] = dtype, shape, struct.pack("<f", float("nan")) + data[4:]
    rewrite_state(run, change)
    for reader in EVERYBODY[:5]:
        one_line(evenkeel(*commands(run, tmp_path)[reader]), "[numeric]", "q_proj/b", "not finite")


@pytest.mark.parametrize("change, says", [
    (lambda tensors: tensors.pop(site_of(tensors)), "are missing"),
    (lambda tensors: tensors.update({site_of(tensors): (*[tensors[site_of(tensors)][0]],
                                                        tensors[site_of(tensors)][1][::-1],
                                                        tensors[site_of(tensors)][2])}), "does not fit the model"),
    (lambda tensors: tensors.update({site_of(tensors, "scaling"): ("F64", [2], bytes(16))}), "q_proj/scaling of shape [2]"),
    (lambda tensors: tensors.clear(), "are missing"),
], ids=["missing", "turned", "vector scaling", "empty"])
def test_a_state_that_does_not_fit_the_model_is_refused(run, change, says, tmp_path):
    rewrite_state(run, change)
    before = content(run)
    one_line(resume(run), "state.safetensors", says)
    one_line(evenkeel(*commands(run, tmp_path)["evaluate"]), "state.safetensors", says)
    assert content(run) == before


def test_a_state_without_tensors_is_not_exported(run, tmp_path):
    rewrite_state(run, lambda tensors: tensors.clear())
    one_line(evenkeel("export", "--run", run, "--out", tmp_path / "exported"), "no adapter")
    assert not (tmp_path / "exported").exists()


# --- the config ---

def test_an_edited_config_is_rejected_with_its_keys(run, tmp_path):
    config = run / "config.toml"
    config.write_text(config.read_text().replace("seed = 5", "seed = 6").replace("rank = 3", "rank = 4"))
    for reader in EVERYBODY:
        one_line(evenkeel(*commands(run, tmp_path)[reader]), "config.toml", "seed is 6, in the run 5", "lora.rank is 4, in the run 3")


def test_a_resume_with_unchanged_settings_is_accepted(run, tiny_model, tmp_path):
    assert resume(run, *quick(tiny_model), "--threads", 1, "--set", "seed=5").returncode == 0
    said = one_line(resume(run, *settings(train__local_epochs="9.0", seed=5, method__name="fedit")))
    assert "method.name" in said and "seed is" not in said, said
    one_line(resume(run, *settings(train__rounds=1)), "train.rounds is 1", "2 rounds are done")
    one_line(resume(run, "--threads", 2), "threads is 2, in the run 1")
    edited = tmp_path / "edited.toml"
    edited.write_text(CONFIG.read_text().replace("seed = 5", "seed = 7").replace("rounds = 3", "rounds = 4"))
    said = one_line(evenkeel("train", edited, "--out", run, "--resume"), "seed is 7, in the run 5")
    assert "train.rounds is" not in said  # the run was started with its own --set for the rounds
    one_line(evenkeel("train", CONFIG, "--out", run, "--from-round", 1), "--from-round", "--resume")


# --- one process, many readers ---

def test_a_second_process_is_rejected_with_the_holder_and_readers_work(tiny_model, finished, tmp_path):
    out = tmp_path / "run"
    process = start("train", CONFIG, "--out", out, *quick(tiny_model))
    wait_for(lambda: list(out.glob("checkpoint/uploads-2/*.json")))
    process.send_signal(signal.SIGSTOP)  # in its second round, during the whole test
    one_line(resume(out), "in use by process", f"process {process.pid} on", "since")
    for reader in ("report", "evaluate", "export"):
        succeed(*commands(out, tmp_path)[reader])
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=600) == 0, process.communicate()
    expect_same_run(out, finished)


def test_a_killed_process_leaves_no_lock(half_done, finished, tmp_path):
    out = shutil.copytree(half_done, tmp_path / "run")
    assert (out / ".lock").exists()
    assert resume(out).returncode == 0
    expect_same_run(out, finished)


# --- export ---

@pytest.mark.parametrize("form, name", [("peft", "adapter_model.safetensors"), ("merged", "model.safetensors")])
def test_a_killed_export_can_be_repeated(finished, tmp_path, form, name):
    words = ["export", "--run", finished, "--format", form, "--out"]
    began = time.monotonic()
    done = started(*words, tmp_path / "whole")  # started like those that the test kills
    assert done.returncode == 0, done.stderr
    duration, clock = time.monotonic() - began, random.Random(form)
    for _ in range(5):
        process = start(*words, tmp_path / "out")
        time.sleep(clock.uniform(0.4, 0.95) * duration)
        process.kill()
        process.communicate()
        if (tmp_path / "out").exists():  # if the export was faster than the kill, it is complete
            assert content(tmp_path / "out") == content(tmp_path / "whole")
            shutil.rmtree(tmp_path / "out")
    (tmp_path / "out.part").mkdir(exist_ok=True)
    (tmp_path / "out.part/half").write_text("")
    (tmp_path / "out.part.lock").write_text("")
    (tmp_path / "out.part.lock.part-17-0").write_text("")
    (tmp_path / "my.out.part").mkdir()
    succeed(*words, tmp_path / "out")
    assert content(tmp_path / "out") == content(tmp_path / "whole") and (tmp_path / "out" / name).exists()
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "out", "my.out.part"}
    one_line(evenkeel(*words, tmp_path / "out"), "not empty")
