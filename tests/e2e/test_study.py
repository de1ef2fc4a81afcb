"""Tests `evenkeel study`: one run per arm and seed.

A study that is stopped at any point and resumed gives the same bits as one that was not.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, lines, nightly, one_line, sealed, settings, slow, started, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
ARMS = {"fedit": ["method.name=fedit"], "a3smoe": ["method.name=a3smoe"], "ub-smoe": ["method.name=ub-smoe"]}
SEEDS = [1, 2]
RUNS = [f"{arm}/seed-{seed}" for seed in SEEDS for arm in ARMS]


def write(file, arms=ARMS, seeds=SEEDS, base="base.toml", **keys):
    """Writes a study file and returns its path. `seeds` may be a list or TOML text."""
    text = [f'[study]\nbase = "{base}"\nseeds = {seeds}'] + [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    text += [f'[[study.arm]]\nname = "{name}"\nset = {json.dumps(sets)}' for name, sets in arms.items()]
    file.write_text("\n".join(text) + "\n")
    return file


@pytest.fixture(scope="module")
def base(tiny_model, tmp_path_factory):
    """Returns a folder with a small config, base.toml, and a study file of it, methods.toml: three arms with two seeds."""
    folder = tmp_path_factory.mktemp("study")
    text = CONFIG.read_text().replace('"models/tiny"', f'"{tiny_model}"').replace("limit = 90", "limit = 30")
    text = text.replace("[method]\n", '[method]\ngate_norm = "renorm_selected"\n')  # one for all arms: the model's own gates are others
    text = text.replace("rounds = 3", "rounds = 2").replace("limit = 3\n", "limit = 1\n").replace("[0.125, 1.0]\nlimit", "[1.0]\nlimit")
    (folder / "base.toml").write_text(text)
    write(folder / "methods.toml", reference="fedit")
    return folder


@pytest.fixture
def file(base, tmp_path):
    """Returns a copy of methods.toml that a test may change. base.toml is in the same folder."""
    shutil.copy(base / "base.toml", tmp_path)
    shutil.copy(base / "methods.toml", tmp_path)
    return tmp_path / "methods.toml"


def study(file, out, *words, **options):
    return started("study", file, "--out", out, *words, **options)


def state(out):
    return json.loads((out / "study.json").read_text())


def states(out):
    return {run["folder"]: run["state"] for run in state(out)["runs"]}


def expect_same_runs(out, reference, folders=RUNS):
    for folder in folders:
        assert (out / folder / ADAPTER).read_bytes() == (reference / folder / ADAPTER).read_bytes(), folder
        for records in ("rounds.jsonl", "evaluations.jsonl"):
            assert without_seconds(lines(out / folder / records)) == without_seconds(lines(reference / folder / records)), folder
        assert (out / folder / "partition.json").read_bytes() == (reference / folder / "partition.json").read_bytes()


@pytest.fixture(scope="module")
def undisturbed(base):
    out = base / "undisturbed"
    done = study(base / "methods.toml", out)
    assert done.returncode == 0, done.stderr
    return out, done


def test_a_study_trains_one_run_per_arm_and_seed(undisturbed, base, tmp_path):
    out, done = undisturbed
    assert done.stdout == "study methods: 6 of 6 runs done, 0 failed, 0 left\n"
    made = state(out)
    assert {run["folder"] for run in made["runs"]} == set(RUNS)
    assert all(run["state"] == "done" and run["seconds"] > 0 and len(run["config"]) == 64 for run in made["runs"])
    assert (made["version"], made["name"], made["reference"], made["endpoint"], made["seeds"]) == (1, "methods", "fedit", "log_likelihood", SEEDS)
    assert made["arms"] == [{"name": name, "set": sets, "config": hashlib.sha256((out / name / "arm.toml").read_bytes()).hexdigest()}
                            for name, sets in ARMS.items()]
    assert "threads=1" in made["pinned"] and 'model.compute_dtype="float32"' in made["pinned"]
    assert re.search(r"6 of 6 runs done", done.stderr) and re.search(r"about \d+ s left", done.stderr)
    alone = tmp_path / "alone"  # the same run as a single `evenkeel train`
    succeed("train", base / "base.toml", "--out", alone, *settings(method__name="ub-smoe", seed=2))
    assert (alone / ADAPTER).read_bytes() == (out / "ub-smoe/seed-2" / ADAPTER).read_bytes()
    assert without_seconds(lines(alone / "evaluations.jsonl")) == without_seconds(lines(out / "ub-smoe/seed-2/evaluations.jsonl"))


def test_status_prints_one_line_per_run(undisturbed, tmp_path):
    said = started("status", undisturbed[0]).stdout.splitlines()
    assert said[0] == "study methods: 6 of 6 runs done, 0 failed"
    assert len(said) == 7 and all(re.fullmatch(r"[\w-]+:[12]  done in \d+ s", line) for line in said[1:])
    stopped = tmp_path / "stopped"
    shutil.copytree(undisturbed[0], stopped)
    (stopped / "study.json").write_text(sealed({**state(stopped), "runs": [{**run, "state": "running"} for run in state(stopped)["runs"]]}) + "\n")
    assert started("status", stopped).stdout.splitlines()[1] == "fedit:1  stopped, round 2"


def test_rows_and_participants_are_equal_per_seed_in_all_arms(undisturbed):
    out, _ = undisturbed
    for seed in SEEDS:
        runs = [out / f"{arm}/seed-{seed}" for arm in ARMS]
        assert len({(run / "partition.json").read_bytes() for run in runs}) == 1
        drawn = [[[client["id"] for client in line["clients"]] for line in lines(run / "rounds.jsonl")] for run in runs]
        assert drawn[0] == drawn[1] == drawn[2]
    assert (out / "fedit/seed-1/partition.json").read_bytes() != (out / "fedit/seed-2/partition.json").read_bytes()


def begin(file, out, *words, stdout=subprocess.DEVNULL):
    return subprocess.Popen([PROGRAM, "study", file, "--out", out, *map(str, words)], cwd=ROOT, stdout=stdout,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def wait_for(condition, process, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.005)


def rounds(out):
    return sum(len(lines(out / folder / "rounds.jsonl")) for folder in RUNS)


@pytest.mark.parametrize("jobs, first, second", [(1, 1, 7), pytest.param(2, 3, 8, marks=slow)])
def test_a_study_killed_twice_and_resumed_gives_the_same_bits(undisturbed, file, tmp_path, jobs, first, second):
    out = tmp_path / "out"
    for at in (first, second):
        process = begin(file, out, "--jobs", jobs, "--resume")
        wait_for(lambda: rounds(out) >= at, process)
        process.kill()
        process.communicate()
        assert "running" in states(out).values()
    done = study(file, out, "--jobs", jobs, "--resume")
    assert done.returncode == 0, done.stderr
    assert set(states(out).values()) == {"done"}
    expect_same_runs(out, undisturbed[0])


def with_equal_times(value):
    """Returns records in which everything took one second."""
    if isinstance(value, dict):
        return {key: 1.0 if key in ("seconds", "tokens_per_second") and isinstance(entry, float) else
                dict.fromkeys(entry, 1.0) if key == "seconds" and isinstance(entry, dict) else with_equal_times(entry) for key, entry in value.items()}
    return [with_equal_times(entry) for entry in value] if isinstance(value, list) else value


def reports(out, place):
    """The page, LaTeX and CSV of a copy of the study at `place`, whose runs all began and took the same time."""
    shutil.copytree(out, place)
    for folder in [place / run["folder"] for run in state(place)["runs"]]:
        for file in (folder / "rounds.jsonl", folder / "evaluations.jsonl"):
            file.write_text("".join(sealed(with_equal_times(line)) + "\n" for line in lines(file)))
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(sealed({**manifest, "created": "then"}) + "\n")
    made = {kind: started("report", place, "--format", kind).stdout for kind in ("csv", "latex", "json", "text")}
    assert started("report", place, "--html", place / "page.html").returncode == 0
    made["html"] = (place / "page.html").read_text().replace(str(out), "the study")  # output.dir of every config
    shutil.rmtree(place)
    return made


@nightly
def test_three_arms_and_five_seeds_killed_twice_have_the_reports_of_the_undisturbed_study(file, tmp_path):
    base = file.parent / "base.toml"
    base.write_text(re.sub(r'path = ".*"', 'path = "builtin:tiny-olmoe"', base.read_text(), count=1))
    write(file, seeds=[1, 2, 3, 4, 5], reference="fedit")
    assert study(file, tmp_path / "whole").returncode == 0
    out = tmp_path / "killed"
    made = [f"{arm}/seed-{seed}" for seed in range(1, 6) for arm in ARMS]
    for at in (3, 17):  # rounds of thirty
        process = begin(file, out, "--resume")
        wait_for(lambda: sum(len(lines(out / folder / "rounds.jsonl")) for folder in made) >= at, process)
        process.kill()
        process.communicate()
    assert study(file, out, "--resume").returncode == 0
    assert set(states(out)) == set(made) and set(states(out).values()) == {"done"}
    expect_same_runs(out, tmp_path / "whole", made)
    whole, killed = reports(tmp_path / "whole", tmp_path / "study"), reports(out, tmp_path / "study")
    assert whole["csv"].count("\n") > 100 and "\\toprule" in whole["latex"]
    assert all(folder in whole["html"] for folder in made)
    assert whole == killed


def test_a_study_records_the_scores_of_single_rows_unless_it_says_otherwise(undisturbed, file, tmp_path):
    run = undisturbed[0] / "fedit/seed-1"
    assert state(undisturbed[0])["common"] == ["evaluate.items=true"] and "items = true" in (run / "config.toml").read_text()
    assert json.loads((run / "manifest.json").read_text())["request"]["settings"] == ["seed=1"]
    assert "items = true" in (undisturbed[0] / "fedit/arm.toml").read_text()
    assert (run / "items/round-2.jsonl").exists()
    base = file.parent / "base.toml"
    for words, common, in ([["--set", "evaluate.items=false"], ["evaluate.items=false"]], [[], []]):
        out = tmp_path / f"out{len(words)}"
        if not words:
            base.write_text(base.read_text().replace("[evaluate]\n", "[evaluate]\nitems = false\n"))
        assert study(file, out, "--only", "fedit:1", *words).returncode == 0
        assert state(out)["common"] == common and not (out / "fedit/seed-1/items").exists()
    one_line(study(file, out, "--resume", "--set", "evaluate.items=true"), "evaluate.items is true", "false")


def test_a_study_killed_before_its_first_run_can_be_started_again(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    process = begin(file, out)
    wait_for(lambda: (out / "base.toml").exists(), process)
    process.kill()
    process.communicate()
    for name in ("study.json", "study.toml"):  # the process may have been killed before it wrote these files
        (out / name).unlink(missing_ok=True)
    for folder in [entry for entry in out.iterdir() if entry.is_dir()]:
        shutil.rmtree(folder)
    done = study(file, out, "--only", "fedit:1")
    assert done.returncode == 0, done.stderr
    expect_same_runs(out, undisturbed[0], ["fedit/seed-1"])


@pytest.mark.parametrize("which", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=slow)])
def test_a_signal_saves_the_state_and_prints_the_resume_command(undisturbed, file, tmp_path, which):
    out = tmp_path / "out"
    process = begin(file, out)
    wait_for(lambda: rounds(out) >= 1, process)
    process.send_signal(which)
    message = process.communicate(timeout=600)[1].splitlines()[-1]
    assert process.returncode == 130 and "the state is saved" in message
    assert set(states(out).values()) <= {"planned", "done"}
    done = subprocess.run(message.split("resume with: ", 1)[1], shell=True, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr
    expect_same_runs(out, undisturbed[0])


def test_a_study_can_stop_when_its_reader_is_gone(file, tmp_path):
    process = begin(file, tmp_path / "out", "--while-read", stdout=subprocess.PIPE)
    wait_for(lambda: rounds(tmp_path / "out") >= 1, process)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=600) == 130 and "the state is saved" in said, said


def test_runs_can_be_chosen_by_name(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    done = study(file, out, "--only", "ub-smoe:2", "--only", "fedit:1")
    assert done.returncode == 0 and "2 of 6 runs done, 0 failed, 4 left" in done.stdout, done.stderr
    assert {folder for folder, what in states(out).items() if what == "done"} == {"ub-smoe/seed-2", "fedit/seed-1"}
    expect_same_runs(out, undisturbed[0], ["ub-smoe/seed-2", "fedit/seed-1"])
    one_line(study(file, out, "--only", "fedit:3", "--resume"), "[config] --only is fedit:3", "ARM:SEED")
    array = study(file, out, "--only", "a3smoe:1", "--only", "fedit:2", "--resume", "--dry-run").stdout
    assert "2 to make by this command" in array and "--array=1-2" in array and "--only a3smoe:1 --only fedit:2 --resume --shard" in array
    named = ["--only", "a3smoe:1", "--only", "a3smoe:2", "--resume"]  # a shard is a share of what is named
    assert "3 of 6 runs done" in study(file, out, *named, "--shard", "2/2").stdout
    assert (states(out)["a3smoe/seed-1"], states(out)["a3smoe/seed-2"]) == ("planned", "done")


def test_the_sbatch_command_of_dry_run_runs_the_whole_study(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    done = study(file, out, "--dry-run", "--shard", "1/3")
    assert done.returncode == 0 and not out.exists(), done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert said["study"] == "methods: 3 arms x 2 seeds, 6 runs, 2 to make by this command"
    assert re.match(r"about \d+ s with --jobs 1, measured with arm fedit", said["time"])
    assert re.match(r"[\d.]+ [MG]iB a run", said["memory"]) and re.match(r"about [\d.]+ [KMG]iB in ", said["disk"])
    assert "--array=1-3 --ntasks=1 --cpus-per-task=1 --mem=" in said["array"]
    slurm = tmp_path / "bin/sbatch"  # a stand-in for sbatch that starts all array tasks at once
    slurm.parent.mkdir()
    slurm.write_text("""#!/bin/bash
for word in "$@"; do case "$word" in
  --array=1-*) last="${word#--array=1-}";;
  --wrap=*) wrap="${word#--wrap=}";;
esac; done
for i in $(seq "$last"); do SLURM_ARRAY_TASK_ID=$i sh -c "$wrap" & tasks="$tasks $!"; done
for task in $tasks; do wait "$task" || exit 1; done
""")
    slurm.chmod(0o755)
    ran = subprocess.run(said["array"], shell=True, capture_output=True, text=True, cwd=ROOT, timeout=600,
                         env={**os.environ, "PATH": f"{slurm.parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stderr
    assert set(states(out).values()) == {"done"}
    expect_same_runs(out, undisturbed[0])


def test_dry_run_estimates_disk_and_time_within_a_factor(undisturbed, file):
    out, _ = undisturbed
    said = study(file, file.parent / "out", "--dry-run").stdout
    number, unit = re.search(r"disk +about ([\d.]+) ([KMG]iB)", said).groups()
    foreseen = float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit]
    there = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    assert 0.3 * there < foreseen < 5 * there
    seconds = float(re.search(r"time +about (\d+) s", said).group(1))
    took = sum(run["seconds"] for run in state(out)["runs"])
    assert 0.1 * took < seconds < 10 * took


def test_a_failed_run_is_reported_and_the_other_runs_finish(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    write(file, {**ARMS, "wild": ["method.name=fedit", "train.optimizer={ lr = 1e6, weight_decay = 1e6 }"]}, reference="fedit")
    line = one_line(study(file, out, "--jobs", 2), "2 of 8 runs failed, the first: wild:1", "--resume")
    assert "[numeric]" in line
    assert {folder for folder, what in states(out).items() if what == "failed"} == {"wild/seed-1", "wild/seed-2"}
    failed = [run for run in state(out)["runs"] if run["state"] == "failed"]
    assert all(run["error"].startswith("[numeric]") and "\n" not in run["error"] for run in failed)
    expect_same_runs(out, undisturbed[0])
    again = study(file, out, "--resume")
    assert again.returncode == 1 and set(states(out).values()) == {"done", "failed"}
    assert study(file, out, "--resume", "--only", "fedit:1").returncode == 0  # the run that --only names is done; the failed runs are not its concern


def children(process):
    return [int(word) for word in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]


def test_killing_the_process_of_a_run_fails_only_that_run_which_can_be_resumed(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    process = begin(file, out, "--only", "fedit:1", "--only", "a3smoe:1")
    wait_for(lambda: children(process), process)
    os.kill(children(process)[0], signal.SIGKILL)
    message = process.communicate(timeout=600)[1]
    assert process.returncode == 1 and "1 of 2 runs failed, the first: fedit:1: killed by signal 9" in message
    assert states(out)["fedit/seed-1"] == "failed" and states(out)["a3smoe/seed-1"] == "done"
    assert study(file, out, "--resume", "--only", "fedit:1").returncode == 0
    expect_same_runs(out, undisturbed[0], ["fedit/seed-1", "a3smoe/seed-1"])


def test_arms_and_seeds_can_be_added(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    write(file, {name: ARMS[name] for name in ("fedit", "a3smoe")}, [2])
    assert study(file, out).returncode == 0
    write(file, reference="a3smoe")
    done = study(file, out, "--resume")
    assert done.returncode == 0 and "4 runs are added" in done.stderr, done.stderr
    assert state(out)["reference"] == "a3smoe" and len(state(out)["runs"]) == 6
    expect_same_runs(out, undisturbed[0])


def test_a_moved_study_resumes_without_the_original_study_file(undisturbed, file, tmp_path):
    out, moved = tmp_path / "out", tmp_path / "moved"
    assert study(file, out, "--only", "fedit:1", *settings(train__batch_size=2)).returncode == 0
    out.rename(moved)
    file.unlink()
    done = study(moved / "study.toml", moved, "--resume", "--only", "a3smoe:2")
    assert done.returncode == 0, done.stderr
    assert state(moved)["name"] == "methods" and state(moved)["common"] == ["evaluate.items=true", "train.batch_size=2"]
    expect_same_runs(moved, undisturbed[0], ["fedit/seed-1", "a3smoe/seed-2"])


def test_two_processes_cannot_execute_the_same_run(file, tmp_path):
    out = tmp_path / "out"
    process = begin(file, out)
    wait_for(lambda: rounds(out) >= 1, process)
    line = one_line(study(file, out, "--resume", "--only", "ub-smoe:2"), "[io]", out, "another process makes ub-smoe:2")
    assert "--only" in line
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)


def untouched(out):
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


BAD_FILES = [
    ("a repeated seed", {"seeds": [1, 2, 1]}, ["study.seeds holds 1 twice", "methods.toml, line 3"]),
    ("a seed below 0", {"seeds": [-1]}, ["study.seeds holds -1", "0 or more"]),
    ("no seed", {"seeds": []}, ["study.seeds is empty"]),
    ("seeds that are not numbers", {"seeds": '["a"]'}, ["study.seeds"]),
    ("an unknown reference", {"reference": "fedavg"}, ["study.reference is \"fedavg\"", "fedit, a3smoe, ub-smoe"]),
    ("an unknown endpoint", {"endpoint": "loss"}, ["study.endpoint is \"loss\"", "log_likelihood, accuracy, invalid_rate"]),
    ("an unknown key", {"seed": [1]}, ["study.seed is not a known key", "seeds"]),
    ("a missing base file", {"base": "nowhere.toml"}, ["nowhere.toml"]),
    ("an unknown free key", {"free": ["data.limits"]}, ["study.free holds \"data.limits\""]),
    ("a free key that is pinned", {"free": ["threads"]}, ["study.free holds \"threads\""]),
    ("no arm", {"arms": {}}, ["study.arm is empty"]),
    ("an arm named as a path", {"arms": {"../x": []}}, ["study.arm[0].name is \"../x\""]),
    ("two arms with the same name", {"arms": {"a": [], "A": []}}, ["study.arm[1].name is \"A\" twice"]),
    ("an unknown key in one arm", {"arms": {**ARMS, "x": ["method.nam=fedit"]}}, ["arm x", "method.nam"]),
    ("an unknown method in one arm", {"arms": {**ARMS, "x": ["method.name=fedavg"]}}, ["arm x", "fedavg"]),
    ("a setting without =", {"arms": {**ARMS, "x": ["method"]}}, ["arm x", "a.b=value"]),
    ("an arm with other rows", {"arms": {**ARMS, "x": ["data.limit=20"]}}, ["arm x: data.limit is 20, in arm fedit 30", "free = [\"data.limit\"]"]),
    ("an arm with other clients", {"arms": {**ARMS, "x": ["clients.count=4", "clients.budgets=[1.0]"]}}, ["arm x: clients."]),
    ("an arm with another partition", {"arms": {**ARMS, "x": ["data.partition.alpha=5"]}}, ["arm x: data.partition.alpha is 5"]),
    ("an arm with other participants", {"arms": {**ARMS, "x": ["clients.participation=1.0"]}}, ["arm x: clients.participation"]),
    ("an arm with other rounds", {"arms": {**ARMS, "x": ["train.rounds=3"]}}, ["arm x: train.rounds is 3, in arm fedit 2"]),
    ("an arm with another rank", {"arms": {**ARMS, "x": ["lora.rank=2"]}}, ["arm x: lora.rank is 2, in arm fedit 3"]),
    ("an arm with other arithmetic", {"arms": {**ARMS, "x": ["model.compute_dtype=bfloat16"]}}, ["arm x: model.compute_dtype is \"bfloat16\""]),
    ("an arm with other threads", {"arms": {**ARMS, "x": ["threads=2"]}, "free": ["data"]}, ["arm x: threads is 2, in arm fedit 1"]),
    ("an arm with its own seed", {"arms": {**ARMS, "x": ["seed=7"]}}, ["arm x sets seed=7", "[study] seeds"]),
    ("an arm whose method does not fit", {"arms": {**ARMS, "x": ["method.name=fedit", "method.gate_norm=soft"]}}, ["arm x", "gate_norm"]),
    ("an endpoint that no task has", {"arms": ARMS, "endpoint": "f1"}, ['study.endpoint is "f1"', "builtin:facts", "allowed: log_likelihood, accuracy"]),
    ("likelihoods that are not computed", {"arms": ARMS, "base_says": ("[evaluate]\n", "[evaluate]\nlikelihood = false\n")},
     ['study.endpoint is "log_likelihood"', "allowed: accuracy"]),
    ("an endpoint of free text", {"arms": ARMS, "endpoint": "exact_match"}, ['study.endpoint is "exact_match"', "no task of arm fedit"]),
    ("missing rows", {"arms": ARMS, "base_says": ("task = \"builtin\"", "task = \"commonsense\"\npath = \"nowhere\"")}, ["nowhere"]),
]


@pytest.mark.parametrize("what, keys, says", BAD_FILES, ids=[name for name, *_ in BAD_FILES])
def test_an_invalid_study_file_is_reported_in_one_line_before_any_work(file, tmp_path, what, keys, says):
    if "base_says" in keys:
        base = file.parent / "base.toml"
        base.write_text(base.read_text().replace(*keys["base_says"]))
    write(file, **{key: value for key, value in keys.items() if key != "base_says"})
    one_line(study(file, tmp_path / "out"), *says)
    assert not (tmp_path / "out").exists()


ROWS = [{"prompt": f"Which animal is number {i}?", "completion": f"the fox {i}"} for i in range(30)]


@pytest.fixture
def own_rows(file, tmp_path):
    """Writes a study of one arm with two seeds on rows of a file, whose first run is done. Returns its file, its folder and that of the rows."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    base = file.parent / "base.toml"
    base.write_text(base.read_text().replace('task = "builtin"', 'task = "files"') + f'\n[data.files]\ntrain = ["{rows}"]\n')
    write(file, arms={"fedit": []}, endpoint="f1")
    done = study(file, tmp_path / "out", "--only", "fedit:1")
    assert done.returncode == 0, done.stderr
    return file, tmp_path / "out", rows


def cut(rows):
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:20]))


def change_a_letter(rows):
    rows.write_text(rows.read_text().replace("the fox 3", "the fog 3"))


def append_a_row(rows):
    rows.write_text(rows.read_text() + json.dumps(ROWS[0] | {"completion": "the owl"}) + "\n")


@pytest.mark.parametrize("change", [cut, change_a_letter, append_a_row])
def test_a_study_does_not_go_on_with_changed_rows(own_rows, change):
    file, out, rows = own_rows
    before = rows.read_text()
    change(rows)
    one_line(study(file, out, "--resume"), "[data] fedit:1", "rows.jsonl has changed since the run was made", "runs of the study were made with it")
    assert states(out) == {"fedit/seed-1": "done", "fedit/seed-2": "planned"}
    if change is not cut:
        return
    rows.rename(rows.with_name("elsewhere"))
    one_line(study(file, out, "--resume"), "rows.jsonl is")
    rows.write_text(before)
    done = study(file, out, "--resume")
    assert done.returncode == 0, done.stderr
    cut(rows)
    assert study(file, out, "--resume").returncode == 0  # nothing is left to do
    write(file, arms={"fedit": []}, seeds=[1, 2, 3], endpoint="f1")
    one_line(study(file, out, "--resume"), "[data] fedit:1", "rows.jsonl has changed")


def first_run(process, is_loaded):
    """Returns the id of the study's first run as soon as it exists or, with `is_loaded`, as soon as its program is loaded."""
    until = time.monotonic() + 600
    while time.monotonic() < until and process.poll() is None:
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            for child in children.read().split():
                with open(f"/proc/{child}/cmdline", "rb") as words:
                    if not is_loaded or b"train" in words.read().split(b"\0"):
                        return int(child)
    raise AssertionError("the study starts no run")


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_before_it_can_save_anything_has_not_failed(file, tmp_path, which, is_loaded):
    out = tmp_path / "out"
    words = [PROGRAM, "study", file, "--out", out]
    with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        child = first_run(process, is_loaded)
        os.kill(child, signal.SIGSTOP)  # before it has prepared for signals
        process.send_signal(which)
        time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):  # it may have ended at once
            os.kill(child, signal.SIGCONT)
        said = process.communicate(timeout=600)[1]
    assert process.returncode == 130 and "failed" not in said, said
    assert set(states(out).values()) == {"planned"} and "resume with" in said


def remove(*names):
    def change(out):
        for name in names:
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return change


def exchange(first, second):
    def change(out):
        (out / first).rename(out / "other")
        (out / second).rename(out / first)
        (out / "other").rename(out / second)
    return change


def edit(name, before, after):
    def change(out):
        text = (out / name).read_text()
        assert before in text
        (out / name).write_text(text.replace(before, after, 1))
    return change


BAD_FOLDERS = [
    ("a run's manifest is gone", remove("fedit/seed-1/manifest.json"), ["fedit:1", "manifest.json is missing"]),
    ("a run's records are gone", remove("fedit/seed-1/rounds.jsonl"), ["fedit:1", "rounds.jsonl holds 0 rounds of 2"]),
    ("a run's scores are gone", remove("ub-smoe/seed-2/evaluations.jsonl"), ["ub-smoe:2", "evaluations.jsonl is missing"]),
    ("a run's checkpoint is gone", remove("fedit/seed-2/checkpoint"), ["fedit:2", "commit.json is missing"]),
    ("a run's adapter is gone", remove("fedit/seed-2/adapter"), ["fedit:2", "adapter_model.safetensors is missing"]),
    ("a run's config is gone", remove("fedit/seed-2/config.toml"), ["fedit:2", "config.toml"]),
    ("a run is gone", remove("a3smoe/seed-1"), ["a3smoe:1", "is gone", "--only a3smoe:1"]),
    ("an arm is gone", remove("a3smoe"), ["a3smoe/arm.toml is missing"]),
    ("an arm's config was changed", edit("a3smoe/arm.toml", "rounds = 2", "rounds = 3"), ["a3smoe/arm.toml is not the config"]),
    ("the runs of two seeds are exchanged", exchange("fedit/seed-1", "fedit/seed-2"), ["fedit:1", "a run of another study", "seed is 1, in the run 2"]),
    ("the runs of two arms are exchanged", exchange("fedit/seed-1", "a3smoe/seed-1"), ["fedit:1", "method.name"]),
    ("a line of records is damaged", edit("fedit/seed-1/rounds.jsonl", '"round":1', '"round":3'), ["fedit:1", "rounds.jsonl"]),
    ("the state is gone", remove("study.json"), ["study.json is missing"]),
    ("the state is damaged", edit("study.json", '"done"', '"Done"'), ["study.json"]),
    ("the base is gone", remove("base.toml"), ["base.toml is missing"]),
    ("the base was changed", edit("base.toml", "rounds = 2", "rounds = 3"), ["base.toml is not the config"]),
]


@pytest.mark.parametrize("what, change, says", BAD_FOLDERS, ids=[name for name, *_ in BAD_FOLDERS])
def test_a_damaged_study_is_reported_in_one_line_and_not_changed(undisturbed, base, tmp_path, what, change, says):
    out = tmp_path / "out"
    shutil.copytree(undisturbed[0], out)
    change(out)
    before = untouched(out)
    one_line(study(base / "methods.toml", out, "--resume"), out, *says)
    assert untouched(out) == before


def test_a_deleted_run_is_repeated_when_only_names_it(undisturbed, base, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(undisturbed[0], out)
    shutil.rmtree(out / "a3smoe/seed-1")
    assert study(base / "methods.toml", out, "--resume", "--only", "a3smoe:1").returncode == 0
    expect_same_runs(out, undisturbed[0])


def test_an_output_folder_with_another_study_or_other_files_is_refused(undisturbed, file, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(undisturbed[0], out)
    one_line(study(file, out), "holds a study already", "--resume")
    write(file, {**ARMS, "fedit": ["method.name=fedit", "train.local_epochs=0.5"]})
    one_line(study(file, out, "--resume"), "fedit:1 has another config", "train.local_epochs is 0.5")
    write(file, {"fedit": ARMS["fedit"]})
    one_line(study(file, out, "--resume"), "a3smoe:1, which the study file lacks")
    one_line(study(file, out, "--resume", "--set", "train.rounds=5"), "train.rounds is 5")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("dear all")
    for words in ([], ["--resume"]):
        one_line(study(file, tmp_path / "full", *words), "exists already and is not empty")
    (tmp_path / "stranger/fedit").mkdir(parents=True)
    one_line(study(file, tmp_path / "stranger"), "exists already and is not empty")


def test_runs_on_a_gpu_take_turns_and_a_machine_without_one_is_told_before_anything_is_written(file, tmp_path):
    """JobSlots in job_slots_test.cpp has several GPUs."""
    words = ("--set", "model.device=cuda", "--jobs", 3)
    foreseen = study(file, tmp_path / "out", *words, "--dry-run")
    assert foreseen.returncode == 0, foreseen.stderr
    assert re.search(r"^device  --jobs 3: runs take turns on (the GPU|each of cuda:0 to cuda:\d), \d at a time$", foreseen.stdout, re.M)
    assert re.search(r"^array   sbatch .* --gpus=[1-3] ", foreseen.stdout, re.M)
    done = study(file, tmp_path / "out", *words)
    if done.returncode == 0:  # there is a GPU
        assert "runs take turns on" in done.stderr and set(states(tmp_path / "out").values()) == {"done"}
        return
    assert re.search(r"^time    not computed: there is no GPU here$", foreseen.stdout, re.M)
    one_line(done, "model.device is cuda")
    assert not (tmp_path / "out").exists()


def test_a_study_on_processors_says_nothing_of_devices(file, tmp_path):
    said = study(file, tmp_path / "out", "--jobs", 2, "--dry-run").stdout
    assert "device" not in said and "--gpus" not in said and re.search(r"^work    [\d.]+ [MGT]FLOP to train and to score$", said, re.M)
