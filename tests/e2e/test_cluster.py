"""Tests that several ranks give the bits of one process, and that a run with a lost rank can be resumed to the same
bits.
"""

import json
import os
import pathlib
import random
import resource
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, slow, succeed, without_seconds

ADAPTER = "adapter/adapter_model.safetensors"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
TIMEOUT = 3  # seconds of silence of tests of a loss; a busy machine may hold up a rank as long, so other tests have the default
LONG = 600  # seconds after which a test that hangs has failed


def choices(model_folder, method, **more):
    """Returns the settings of a run with four clients per round, which cannot be divided equally among three ranks."""
    extras = {"fed-sb": {"method__fed-sb__init": "federated", "lora__targets": '["q_proj", "down_proj"]'}, "a3smoe": {"method__a3smoe__rescaler": "learn"}}
    return settings(model__path=model_folder, method__name=method, clients__participation=0.8, evaluate__limit=1,
                    **extras.get(method, {}), **more)


def train(model_folder, out, method="ub-smoe", *flags, resume=False, **more):
    begin = [] if resume else choices(model_folder, method, **more)
    return ["train", CONFIG, "--out", out, *(["--resume"] if resume else []), *begin, *flags]


@pytest.fixture(scope="module")
def alone(tiny_model, tmp_path_factory):
    """Returns method -> run of one process, which is created on first use."""
    runs = {}

    def run(method, **more):
        key = (method, *more.items())
        if key not in runs:
            runs[key] = tmp_path_factory.mktemp("alone") / method
            succeed(*train(tiny_model, runs[key], method, **more))
        return runs[key]
    return run


def expect_same_run(out, reference):
    assert (out / ADAPTER).read_bytes() == (reference / ADAPTER).read_bytes()
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(out / records)) == without_seconds(lines(reference / records))
    assert (out / "partition.json").read_bytes() == (reference / "partition.json").read_bytes()
    last = sorted((out / "checkpoint").glob("round-*"))[-1].name
    for name in ("state.safetensors", "memory.safetensors"):
        assert (out / "checkpoint" / last / name).read_bytes() == (reference / "checkpoint" / last / name).read_bytes()


def dealt(out):
    """Returns the clients of each rank, per line of cluster.jsonl."""
    return [line["clients"] for line in lines(out / "cluster.jsonl")]


@pytest.mark.parametrize("method, ranks", [
    ("ub-smoe", 2), ("flexlora", 3), *(pytest.param(*more, marks=slow) for more in [
        ("ub-smoe", 4), ("a3smoe", 3), ("fedit", 6), ("fed-sb", 3), ("hetlora", 2), ("flora", 3)])])
def test_a_run_over_ranks_is_bit_identical_to_one_process(tiny_model, tmp_path, alone, method, ranks):
    out = tmp_path / "run"
    succeed(*train(tiny_model, out, method, "--ranks", ranks), timeout=600)
    expect_same_run(out, alone(method))
    assert len(dealt(out)) == 3 and all(len(shares) == ranks and len(sum(shares, [])) == 4 for shares in dealt(out))


# --- losses ---


def children(process):
    try:
        return sorted(int(pid) for pid in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split())
    except FileNotFoundError:
        return []


def runs(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Ranks:
    """A running run of several ranks."""

    def __init__(self, *arguments):
        self.launcher = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=ROOT, env=ENVIRONMENT, text=True,
                                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.known = []

    def wait_until(self, condition, count=3):
        end = time.monotonic() + 600
        while not (condition() and len(children(self.launcher.pid)) == count):
            assert self.launcher.poll() is None, self.launcher.communicate()[1]
            assert time.monotonic() < end
            time.sleep(0.002)
        self.known = children(self.launcher.pid)

    def signal(self, rank, number):
        os.kill(self.launcher.pid if rank is None else self.known[rank], number)

    def end(self):
        """Waits for all processes to end. Returns the exit code and the log."""
        try:
            said = self.launcher.communicate(timeout=LONG)[1]
        finally:
            self.launcher.kill()
        end = time.monotonic() + LONG
        while any(map(runs, self.known)) and time.monotonic() < end:
            time.sleep(0.01)
        assert not any(map(runs, self.known)), said
        return self.launcher.returncode, said


def committed(out):
    marker = out / "checkpoint/commit.json"
    return json.loads(marker.read_text())["round"] if marker.exists() else 0


ROUNDS = 5


def test_robust_rules_and_bounds_over_ranks_have_the_bits_of_one_process(tiny_model, tmp_path, alone):
    """Ranks then send every upload to rank 0."""
    robust = {"aggregation__rule": "clipped_mean", "clients__bound_simulated": "true"}
    out = tmp_path / "run"
    succeed(*train(tiny_model, out, "ub-smoe", "--ranks", 2, **robust))
    expect_same_run(out, alone("ub-smoe", **robust))
    assert (out / ADAPTER).read_bytes() != (alone("ub-smoe") / ADAPTER).read_bytes()


@pytest.mark.parametrize("rank, method", [
    (0, "ub-smoe"), *(pytest.param(*more, marks=slow) for more in [(1, "ub-smoe"), (2, "flora"), (None, "ub-smoe")])])
def test_a_run_with_a_killed_rank_resumes_with_other_ranks(tiny_model, tmp_path, alone, rank, method):
    reference = alone(method, train__rounds=ROUNDS)
    clock = random.Random(f"{rank} {method}")
    for attempt in range(20):
        out = tmp_path / f"run-{attempt}"
        ranks = Ranks(*train(tiny_model, out, method, "--ranks", 3, train__rounds=ROUNDS))
        ranks.wait_until(lambda out=out: committed(out) >= 1)
        time.sleep(clock.uniform(0, 0.2))
        ranks.signal(rank, signal.SIGKILL)
        code, said = ranks.end()
        if committed(out) < ROUNDS:  # else it was done before it was killed
            break
    assert code != 0 and committed(out) < ROUNDS, said
    assert rank is None or said.splitlines()[-1] == f"evenkeel: [io] rank {rank} was killed by signal 9: the others are ended", said
    succeed(*train(tiny_model, out, method, "--ranks", 2, resume=True), timeout=600)
    expect_same_run(out, reference)


def stop_writing(ranks, rank):
    """Every file that the rank writes from now on fails (EFBIG), as on a full disk."""
    resource.prlimit(ranks.known[rank], resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize("failing, last", [
    ([1], "rank 1 was killed by signal 9: the others are ended"), ([0], "rank 0 was killed by signal 9: the others are ended"),
    pytest.param([2, 0], "rank 2 was killed by signal 9: the others are ended", marks=slow)])
def test_the_last_line_is_that_a_rank_was_killed(tiny_model, tmp_path, failing, last):
    ranks = Ranks(*train(tiny_model, tmp_path / "run", "fedit", "--ranks", 3, train__rounds=500))
    ranks.wait_until(lambda: committed(tmp_path / "run") >= 1)
    for rank in failing:
        ranks.signal(rank, signal.SIGKILL)
        time.sleep(0.02)
    code, said = ranks.end()
    assert (code, said.splitlines()[-1]) == (1, f"evenkeel: [io] {last}"), said
    assert said.count("evenkeel: ") == 1, said


@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_line_is_the_error_of_the_rank_that_failed(tiny_model, tmp_path, rank):
    ranks = Ranks(*train(tiny_model, tmp_path / "run", "ub-smoe", "--ranks", 3, train__rounds=500))
    ranks.wait_until(lambda: committed(tmp_path / "run") >= 1)
    stop_writing(ranks, rank)
    code, said = ranks.end()
    last = said.splitlines()[-1]
    assert code == 1 and last.startswith("evenkeel: [io] ") and "File too large" in last and "because of another" not in last, said
    assert rank == 0 or "rank 1: " in last, said
    assert said.count("evenkeel: ") == 1, said


@slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_frozen_rank_counts_as_lost(tiny_model, tmp_path, rank):
    out = tmp_path / "run"
    ranks = Ranks(*train(tiny_model, out, "fedit", "--ranks", 3, train__rounds=50, cluster__timeout=TIMEOUT))
    ranks.wait_until(lambda: committed(out) >= 1)
    ranks.signal(rank, signal.SIGSTOP)
    code, said = ranks.end()
    assert code == 1 and said.splitlines()[-1].startswith("evenkeel: [io] rank "), said


@pytest.mark.parametrize("method", ["ub-smoe", pytest.param("flexlora", marks=slow)])
def test_survivors_regroup_and_end_with_the_same_bits(tiny_model, tmp_path, alone, method):
    out = tmp_path / "run"
    ranks = Ranks(*train(tiny_model, out, method, "--ranks", 3, train__rounds=ROUNDS, cluster__regroup="true", cluster__timeout=2 * TIMEOUT))
    ranks.wait_until(lambda: committed(out) >= 1)
    ranks.signal(1, signal.SIGKILL)
    code, said = ranks.end()
    assert code == 0, said
    expect_same_run(out, alone(method, train__rounds=ROUNDS))
    assert lines(out / "cluster.jsonl")[-1]["ranks"] == [0, 2]


@slow
def test_ctrl_c_stops_all_ranks_and_one_process_can_resume(tiny_model, tmp_path, alone):
    out = tmp_path / "run"
    ranks = Ranks(*train(tiny_model, out, "ub-smoe", "--ranks", 3, train__rounds=ROUNDS))
    ranks.wait_until(lambda: committed(out) >= 1)
    ranks.signal(None, signal.SIGINT)
    code, said = ranks.end()
    assert code == 130 and "--resume" in said, said
    succeed(*train(tiny_model, out, resume=True))
    expect_same_run(out, alone("ub-smoe", train__rounds=ROUNDS))


def test_a_lost_terminal_stops_all_ranks_with_the_state_saved(tiny_model, tmp_path):
    out = tmp_path / "run"
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a process that is started inherits it
    try:
        ranks = Ranks(*train(tiny_model, out, "fedit", "--ranks", 2, train__rounds=500))
    finally:
        signal.signal(signal.SIGHUP, before)
    ranks.wait_until(lambda: committed(out) >= 1, count=2)
    for _ in range(3):  # the shell and the kernel each send it
        ranks.signal(None, signal.SIGHUP)
        time.sleep(0.002)
    code, said = ranks.end()
    assert code == 130 and f"--out {out} --resume" in said, said


def test_a_run_of_one_process_can_resume_with_ranks(tiny_model, tmp_path, alone):
    out = tmp_path / "run"
    process = subprocess.Popen([PROGRAM, *map(str, train(tiny_model, out, train__rounds=ROUNDS))], cwd=ROOT, env=ENVIRONMENT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(out.glob("checkpoint/uploads-*/*.json")):
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    kept = {int(path.stem) for path in out.glob(f"checkpoint/uploads-{committed(out) + 1}/*.json")}
    succeed(*train(tiny_model, out, "ub-smoe", "--ranks", 3, resume=True), timeout=600)
    expect_same_run(out, alone("ub-smoe", train__rounds=ROUNDS))
    assert not kept & set(sum(dealt(out)[0], []))


# --- ranks that are started separately ---


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def by_hand(*commands, wrap=lambda rank: [], timeout=600):
    """Runs each command as a rank of its own. Returns (exit code, stderr) of each."""
    port = free_port()
    processes = []
    for rank, words in enumerate(commands):
        own = settings(cluster__rank=rank, cluster__size=len(commands), cluster__store=f"'127.0.0.1:{port}'")
        processes.append(subprocess.Popen([*wrap(rank), PROGRAM, *map(str, words), *own], cwd=ROOT, env=ENVIRONMENT, text=True,
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    try:
        said = [process.communicate(timeout=timeout)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, said)]


def test_ranks_with_different_settings_are_rejected(tiny_model, model, tmp_path):
    def refused(*words, flags=()):
        out = tmp_path / "run"
        ends = by_hand(train(tiny_model, out, "fedit"), [*train(tiny_model, out, "fedit"), *flags])
        for code, said in ends:
            assert code == 1, said
        for word in words:
            assert word in ends[0][1] and word in ends[1][1]
        assert not out.exists()
    refused("asked for another run", "train.rounds is 4, in the run 3", flags=settings(train__rounds=4))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    folder = tmp_path / "elsewhere"  # the same path on another machine with other content
    ends = by_hand(train(folder, tmp_path / "run", "fedit"), train(folder, tmp_path / "run", "fedit"),
                   wrap=lambda rank: mounted(tiny_model if rank == 0 else model, folder))
    for code, said in ends:
        assert code == 1 and "rank 1" in said and "base is" in said, said


def mounted(source, target):
    """Runs a command with `source` mounted at `target`."""
    target.mkdir(exist_ok=True)
    needs_namespaces()
    return ["unshare", "-m", "sh", "-c", f"mount --bind {source} {target} && exec \"$@\"", "sh"]


def needs_namespaces():
    done = subprocess.run(["unshare", "-mn", "true"], capture_output=True, text=True) if shutil.which("unshare") else None
    if done is None or done.returncode != 0:
        pytest.skip(f"no namespaces here: {done.stderr.strip() if done else 'unshare is missing'}")


def launcher(name, *places):
    found = shutil.which(name, path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), *places, os.environ["PATH"]]))
    return found or pytest.skip(f"{name} is not installed")


def launched(words, out, tiny_model, environment=()):
    done = subprocess.run([*words, PROGRAM, *map(str, train(tiny_model, out, "ub-smoe"))], cwd=ROOT, text=True,
                          capture_output=True, timeout=600, env={**ENVIRONMENT, **dict(environment)})
    assert done.returncode == 0, done.stderr


def test_torchrun_starts_ranks(tiny_model, tmp_path, alone):
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    launched([*torchrun, "--no-python", "--nproc-per-node=2", f"--master-port={free_port()}"], tmp_path / "run", tiny_model)
    expect_same_run(tmp_path / "run", alone("ub-smoe"))


@slow
def test_mpirun_starts_ranks(tiny_model, tmp_path, alone):
    mpirun = launcher("mpirun", *os.environ.get("EVENKEEL_MPI", "").split(os.pathsep))
    kind = subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout
    flags = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "Open MPI" in kind or "Open RTE" in kind else []
    launched([mpirun, *flags, "-n", "2"], tmp_path / "run", tiny_model,
             {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())})
    expect_same_run(tmp_path / "run", alone("ub-smoe"))


@slow
def test_srun_starts_ranks(tiny_model, tmp_path, alone):
    srun = launcher("srun")
    if subprocess.run(["timeout", "20", srun, "-n1", "true"], capture_output=True).returncode != 0:
        pytest.skip("srun is installed, but no Slurm runs here")
    launched([srun, "-K", "-n", "2", "--overcommit"], tmp_path / "run", tiny_model)
    expect_same_run(tmp_path / "run", alone("ub-smoe"))


def test_contradictions_and_bad_values_are_reported_in_one_line(tiny_model, tmp_path):
    command = train(tiny_model, tmp_path / "run")
    one_line(evenkeel(*command, *settings(cluster__rank=1)), "cluster.rank", "both or neither")
    one_line(evenkeel(*command, *settings(cluster__timeout=0.1)), "cluster.timeout is 0.1")
    done = evenkeel(*command, *settings(cluster__device="nowhere0"), "--ranks", 2, timeout=600)
    assert done.returncode == 1 and "interface nowhere0" in done.stderr, done.stderr
    one_line(evenkeel(*command, *settings(cluster__nonsense=1)), "cluster.nonsense is not a known key")


# --- networks ---


@pytest.fixture
def two_hosts():
    """Creates two connected network namespaces, as two machines. Returns the command prefix of each rank."""
    needs_namespaces()
    if not shutil.which("ip"):
        pytest.skip("ip is not installed")
    names = [f"ek{os.getpid()}{end}" for end in "ab"]
    steps = [f"ip netns add {name}" for name in names]
    steps += [f"ip link add wire0 netns {names[0]} type veth peer name wire0 netns {names[1]}"]
    for number, name in enumerate(names, 1):
        steps += [f"ip -n {name} addr add 10.77.0.{number}/24 dev wire0", f"ip -n {name} link set wire0 up",
                  f"ip -n {name} link set lo up"]
    try:
        for step in steps:
            done = subprocess.run(step.split(), capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"{step}: {done.stderr.strip()}")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def on_two_hosts(names, command):
    processes = []
    for rank, name in enumerate(names):
        own = settings(cluster__rank=rank, cluster__size=2, cluster__store="'10.77.0.1:29500'", cluster__device="wire0")
        processes.append(subprocess.Popen(["ip", "netns", "exec", name, PROGRAM, *map(str, command), *own], cwd=ROOT,
                                          env=ENVIRONMENT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    return processes


def link(names, state):
    subprocess.run(["ip", "-n", names[1], "link", "set", "wire0", state], check=True)


@slow
def test_a_short_network_failure_changes_nothing(tiny_model, tmp_path, alone, two_hosts):
    out = tmp_path / "run"
    command = [*train(tiny_model, out, "ub-smoe", train__rounds=ROUNDS), *settings(cluster__timeout=60)]
    processes = on_two_hosts(two_hosts, command)
    while committed(out) < 1:
        assert processes[0].poll() is None, processes[0].communicate()[1]
        time.sleep(0.005)
    link(two_hosts, "down")
    time.sleep(3)
    assert committed(out) < ROUNDS
    link(two_hosts, "up")
    for process in processes:
        assert process.wait(timeout=600) == 0, process.communicate()[1]
    expect_same_run(out, alone("ub-smoe", train__rounds=ROUNDS))


@slow
def test_a_permanent_network_failure_ends_both_sides(tiny_model, tmp_path, two_hosts):
    out = tmp_path / "run"
    processes = on_two_hosts(two_hosts, train(tiny_model, out, "fedit", train__rounds=50, cluster__timeout=TIMEOUT))
    while committed(out) < 1:
        assert processes[0].poll() is None, processes[0].communicate()[1]
        time.sleep(0.005)
    link(two_hosts, "down")
    for process in processes:
        assert process.wait(LONG) not in (0, None)


def test_the_program_defines_no_symbol_of_gloo():
    """The wheel's library has Gloo's classes. A vtable or typeinfo in the program would be a second one."""
    objects = list(pathlib.Path(PROGRAM).parent.glob("src/CMakeFiles/evenkeel_cluster.dir/cluster/gloo.cpp.o"))
    if not objects:
        pytest.skip("no object beside this program")
    symbols = subprocess.run(["nm", "-C", "--defined-only", objects[0]], capture_output=True, text=True, check=True).stdout
    assert "cluster::make_store" in symbols
    assert not [line for line in symbols.splitlines() if re.search(r"(vtable|typeinfo)( name)? for gloo::", line)]
