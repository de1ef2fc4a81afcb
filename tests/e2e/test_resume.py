"""Tests that a run that is killed or interrupted at any point ends with the same bits as an uninterrupted run."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, started, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"


def arguments(model_folder, out, resume):
    if resume:
        return ["train", CONFIG, "--out", out, "--resume"]
    return ["train", CONFIG, "--out", out, *settings(model__path=model_folder, evaluate__every=2)]


def start(*words):
    return subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def committed(out):
    """Checks what a reader sees at any moment: complete lines, and a commit with as many rounds."""
    marker = out / "checkpoint/commit.json"
    done = json.loads(marker.read_text())["round"] if marker.exists() else 0
    assert done - 1 <= len(lines(out / "rounds.jsonl")) <= done
    return done


@pytest.fixture(scope="module")
def undisturbed(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "undisturbed"
    began = time.monotonic()
    done = started(*arguments(tiny_model, out, resume=False))  # started like those that the tests kill
    assert done.returncode == 0, done.stderr
    return out, time.monotonic() - began


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(out / records)) == without_seconds(lines(reference / records))
    assert (out / "partition.json").read_bytes() == (reference / "partition.json").read_bytes()
    left = [str(path.relative_to(out)) for path in out.rglob("*") if ".part-" in path.name or "uploads" in path.name]
    assert not left


@pytest.mark.parametrize("seed", range(4))
def test_a_run_killed_at_random_instants_resumes_to_the_same_bits(undisturbed, tiny_model, tmp_path, seed):
    reference, duration = undisturbed
    out, clock = tmp_path / "run", random.Random(seed)
    kills = 0
    for _ in range(40):
        process = start(*arguments(tiny_model, out, resume=(out / "manifest.json").exists()))
        try:
            process.wait(timeout=clock.uniform(0.1, 0.6) * duration if kills < 5 else 600)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate()
        if out.exists():
            committed(out)
        if process.returncode == 0 and kills > 0:
            break
        if process.returncode == 0:  # it was done before it was to be killed: the machine is faster than it was before
            shutil.rmtree(out)
            duration /= 2
            continue
        assert process.returncode == -signal.SIGKILL
    assert process.returncode == 0 and kills > 0
    expect_same_run(out, reference)


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_ctrl_c_saves_and_prints_the_command_to_resume(undisturbed, tiny_model, tmp_path):
    out = tmp_path / "run"
    process = start(*arguments(tiny_model, out, resume=False))
    wait_for(lambda: list(out.glob("checkpoint/uploads-*/*.json")))
    process.send_signal(signal.SIGINT)
    message = process.communicate(timeout=600)[1].splitlines()[-1]
    assert process.returncode == 130
    assert f"--out {out} --resume" in message
    kept = len(list(out.glob("checkpoint/uploads-*/*.json")))
    assert kept > 0 or committed(out) > 0
    done = subprocess.run(message.split("resume with: ", 1)[1], shell=True, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0 and done.stdout, done.stderr
    expect_same_run(out, undisturbed[0])


@pytest.mark.parametrize("ignored", [False, True], ids=["watched", "ignored"])
def test_a_lost_terminal_saves_the_run_unless_it_is_ignored(tiny_model, tmp_path, ignored):
    out = tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)  # a process that is started inherits it
    try:
        process = start(*arguments(tiny_model, out, resume=False))
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: list(out.glob("checkpoint/uploads-*/*.json")))
    for _ in range(3):  # the shell and the kernel each send it
        process.send_signal(signal.SIGHUP)
        time.sleep(0.002)
    said = process.communicate(timeout=600)[1]
    assert process.returncode == (0 if ignored else 130), said
    assert (f"--out {out} --resume" in said) != ignored


def test_the_command_to_resume_repeats_how_its_process_computed(tiny_model, tmp_path):
    out = tmp_path / "run"
    process = start(*arguments(tiny_model, out, resume=False))
    wait_for(lambda: list(out.glob("checkpoint/uploads-*/*.json")))
    process.kill()
    process.communicate()
    process = start(*arguments(tiny_model, out, resume=True), "--set", "model.engine=aten", "--device", "cpu")
    assert any("computed as this command says" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    message = process.communicate(timeout=600)[1].splitlines()[-1]
    assert process.returncode == 130
    assert f"--set model.engine=aten --device cpu --out {out} --resume" in message


def test_stored_uploads_are_not_computed_again(undisturbed, tiny_model, tmp_path):
    out = tmp_path / "run"
    process = start(*arguments(tiny_model, out, resume=False))
    wait_for(lambda: list(out.glob("checkpoint/uploads-*/*.json")))
    process.kill()
    process.communicate()
    uploads = {path: path.stat().st_mtime_ns for path in out.glob("checkpoint/uploads-*/*.upload.safetensors")
               if path.with_name(path.name.split(".")[0] + ".json").exists()}
    seconds = {}
    for path in out.glob("checkpoint/uploads-*/*.json"):
        record = json.loads(path.read_text())
        seconds[int(path.parent.name.split("-")[1]), record["id"]] = record["seconds"]
    succeed(*arguments(tiny_model, out, resume=True))
    after = {(r["round"], c["id"]): c["seconds"] for r in lines(out / "rounds.jsonl") for c in r["clients"]}
    assert uploads and all(after[key] == value for key, value in seconds.items())
    expect_same_run(out, undisturbed[0])


def some_uploads_replaced(out):
    """Returns True if some, not all, of the last complete round's three uploads were deleted and one of the next round arrived."""
    marker = out / "checkpoint/commit.json"
    done = json.loads(marker.read_text())["round"] if marker.exists() else 0
    left, arrived = (len(list(out.glob(f"checkpoint/uploads-{r}/*.json"))) for r in (done, done + 1))
    return 0 < left < 3 and arrived > 0


@pytest.fixture(scope="module")
def killed_halfway(tiny_model, tmp_path_factory):
    for attempt in range(200):  # repeats: all three uploads may be deleted between two polls
        out = tmp_path_factory.mktemp("killed") / "run"
        process = start(*arguments(tiny_model, out, resume=False))
        while process.poll() is None and not some_uploads_replaced(out):
            time.sleep(0.001)
        process.kill()
        process.communicate()
        if some_uploads_replaced(out):
            return out
    raise AssertionError("no attempt was killed while uploads were being replaced")


@pytest.mark.parametrize("rounds_back", [None, 0, 1])
def test_a_run_killed_while_uploads_are_replaced_resumes_to_the_same_bits(undisturbed, killed_halfway, tmp_path, rounds_back):
    """Resumes from the last complete round, or from the round before it.

    In the latter case some uploads of the round that is repeated are still stored.
    """
    out = tmp_path / "run"
    shutil.copytree(killed_halfway, out)
    told = [] if rounds_back is None else ["--from-round", committed(out) - rounds_back]
    succeed(*arguments(None, out, resume=True), *told)
    expect_same_run(out, undisturbed[0])


def test_resuming_a_finished_run_changes_nothing(undisturbed, tmp_path):
    out, _ = undisturbed
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name not in ("report.html", "log.txt")}
    succeed("train", CONFIG, "--out", out, "--resume")
    assert before == {path: path.read_bytes() for path in before}


def test_a_changed_model_file_is_refused(model, tmp_path):
    out = tmp_path / "run"
    succeed(*arguments(model, out, resume=False), *settings(train__rounds=1))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    one_line(evenkeel(*arguments(model, out, resume=True)), "model.safetensors", "changed")
    (model / "model.safetensors").unlink()
    one_line(evenkeel(*arguments(model, out, resume=True)), "model.safetensors", "gone")


def test_a_resumed_run_keeps_its_config(undisturbed):
    out, _ = undisturbed
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.local_epochs=9.0"), "--set", "--resume",
             "train.local_epochs is 9.0, in the run 0.7")


DEMO = ["train", "configs/demo.toml"]
MEASURED = settings(model__compute_dtype="auto")
WIDEN = MEASURED + settings(**{f"model__products__{place}_{way}": ["widen"] * 8
                               for place in ("expert", "linear") for way in ("forward", "backward")})


@pytest.fixture(scope="module")
def run_with_own_kernels(tmp_path_factory):
    """Runs two rounds of two clients on a 16-bit base, where LibTorch's matrix products give other bits than evenkeel's own."""
    out = tmp_path_factory.mktemp("runs") / "own"
    succeed(*DEMO, "--out", out, *settings(data__limit=64, train__rounds=2, evaluate__limit=4, clients__count=2,
                                           clients__budgets=[0.125, 1.0], evaluate__budgets=[1.0]))
    return out


def second_round_again(run, out, *told):
    shutil.copytree(run, out)
    said = succeed(*DEMO, "--out", out, "--resume", "--from-round", 1, *told).stderr
    return (out / ADAPTER).read_bytes(), "other bits than those of a run that keeps its arithmetic" in said


def test_only_the_arithmetic_may_change_on_resume(run_with_own_kernels, tmp_path):
    """Uses LibTorch's matrix products from the second round on, which gives other bits.

    Without the option the run keeps the matrix products that it began with.
    """
    whole = (run_with_own_kernels / ADAPTER).read_bytes()
    assert second_round_again(run_with_own_kernels, tmp_path / "kept") == (whole, False)
    assert second_round_again(run_with_own_kernels, tmp_path / "measured", *MEASURED)[1]
    adapter, warned = second_round_again(run_with_own_kernels, tmp_path / "told", *WIDEN)
    assert adapter != whole and warned
    refused = one_line(evenkeel(*DEMO, "--out", tmp_path / "told", "--resume", *WIDEN, "--set", "lora.rank=4"),
                       "lora.rank is 4, in the run 16")
    assert "model.compute_dtype is" not in refused


def test_changed_arithmetic_applies_to_every_rank(run_with_own_kernels, tmp_path):
    alone = second_round_again(run_with_own_kernels, tmp_path / "alone", *WIDEN)
    assert second_round_again(run_with_own_kernels, tmp_path / "ranks", *WIDEN, "--ranks", 2) == alone
    assert alone[0] != (run_with_own_kernels / ADAPTER).read_bytes()
    assert [len(share) for share in lines(tmp_path / "ranks/cluster.jsonl")[-1]["clients"]] == [1, 1]


def test_a_folder_without_a_run_is_not_resumed(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    one_line(evenkeel("train", CONFIG, "--out", tmp_path, "--resume"), str(tmp_path), "no run")
    assert (tmp_path / "letter.txt").read_text() == "mine"


def test_a_damaged_checkpoint_is_reported_in_one_line(undisturbed, tiny_model, tmp_path):
    out = tmp_path / "run"
    succeed(*arguments(tiny_model, out, resume=False), *settings(train__rounds=1))
    state = out / "checkpoint/round-1/state.safetensors"
    state.write_bytes(state.read_bytes()[:-10])
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume"), "state.safetensors")


def test_a_missing_partition_is_reported_with_what_to_do(tiny_model, tmp_path):
    out = tmp_path / "run"
    succeed(*arguments(tiny_model, out, resume=False), *settings(train__rounds=1))
    (out / "partition.json").unlink()
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2"), "partition.json is missing: put it back",
             "the rows that it began with")


def test_a_run_without_an_update_of_a_site_is_resumed_evaluated_and_exported(model, tmp_path):
    """With one expert per token, whose gate weight is always one, routers have no gradient, and FLoRIST sends nothing of them."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "num_experts_per_tok": 1, "norm_topk_prob": True}))
    words = settings(model__path=model, method__name="florist", train__local_epochs="0.2", evaluate__budgets="[1.0]", evaluate__limit=1)
    out, reference = tmp_path / "out", tmp_path / "reference"
    succeed("train", CONFIG, "--out", reference, *words, "--set", "train.rounds=2")
    succeed("train", CONFIG, "--out", out, *words, "--set", "train.rounds=1")
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=2")
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    succeed("evaluate", "--run", out, "--limit", 1)
    succeed("generate", "--run", out, "--prompt", "a", "--max-new-tokens", 2)
    for form in ("peft", "merged", "gguf"):
        succeed("export", "--run", out, "--format", form, "--out", tmp_path / form)
