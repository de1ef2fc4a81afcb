"""Checks that a limit of the system is one line that names the limit, with exit code 1."""

import os
import resource
import shlex
import shutil
import subprocess
import tempfile

import pytest

from preload import failing_system  # noqa: F401
from test_federation import Processes, free_port, keygen, node_arguments, run_settings, wait_until
from tiny import CONFIG, PROGRAM, ROOT, one_line, settings, started

NO_THREADS = "no more threads can be started (ulimit -u, pids.max): lower --threads"
ENOUGH = 200


def words(out, **changes):
    return ["train", CONFIG, "--out", out, *settings(**{"model__path": '"builtin:tiny-olmoe"', "method__name": '"fedit"', "train__rounds": 1,
                                                        "data__limit": 30, "evaluate__limit": 1, **changes})]


@pytest.fixture
def limited(failing_system):  # noqa: F811
    """Returns a function that runs the program where the system starts so many threads or processes."""
    def run(*arguments, **limits):
        variables = {name: str(value) for name, value in limits.items()}
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=600,
                              env={**os.environ, "LD_PRELOAD": str(failing_system), **variables})
    return run


@pytest.fixture
def folder_of_others():
    """Returns a folder outside of pytest's, which other users may enter."""
    folder = tempfile.mkdtemp(prefix="evenkeel-test-")
    os.chmod(folder, 0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


# --- threads ---

@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user without processes")
def test_a_user_who_may_start_no_threads_is_told_so(folder_of_others):
    def one_process():
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)

    done = subprocess.run([PROGRAM, *map(str, words(f"{folder_of_others}/run")), "--threads", "2"], capture_output=True, text=True,
                          cwd=folder_of_others, timeout=600, preexec_fn=one_process, env={**os.environ, "HOME": folder_of_others})
    assert one_line(done) == f"evenkeel: [io] {NO_THREADS}"


def test_every_number_of_threads_is_enough_or_reported_in_one_line(limited, tmp_path):
    """The threads are those of the pool, of clients that train at the same time, and of the writer."""
    codes = []
    for threads in [*range(12), ENOUGH]:
        done = limited(*words(tmp_path / str(threads), clients__parallel=2), "--threads", 3, THREADS=threads)
        codes.append(done.returncode)
        if done.returncode != 0:
            assert one_line(done).endswith(NO_THREADS), done.stderr
    assert codes[0] == 1 and codes[-1] == 0 and set(codes) == {0, 1}


@pytest.mark.parametrize("command", ["evaluate", "score", "generate"])
def test_a_pool_that_cannot_be_started_is_reported_in_one_line(command, limited, tmp_path):
    """Without --threads the OpenMP library starts the threads and ends the program, if there is work for several."""
    (tmp_path / "texts.jsonl").write_text('{"text": "a text of some words"}\n' * 3)
    more = {"evaluate": ["--tasks", "builtin:facts", "--limit", 3], "score": ["--input", tmp_path / "texts.jsonl"],
            "generate": ["--prompt", "a text of some words"]}[command]
    call = [command, "--model", "builtin:tiny-olmoe", *more]
    assert one_line(limited(*call, "--threads", 4, THREADS=0)) == f"evenkeel: [io] {NO_THREADS}"
    by_library = limited(*call, THREADS=0, OMP_NUM_THREADS=4)
    assert by_library.returncode == 0 or one_line(by_library) == f"evenkeel: [io] {NO_THREADS}"


def test_ranks_that_cannot_start_threads_are_reported(limited, tmp_path):
    for threads in (0, 1, 3):
        done = limited(*words(tmp_path / str(threads), threads=1), "--ranks", 2, THREADS=threads)
        assert done.returncode == 1 and NO_THREADS in done.stderr and "[internal]" not in done.stderr, done.stderr


def test_a_server_that_cannot_start_its_threads_is_reported(limited, tiny_model, tmp_path):
    keygen(tmp_path, 1)
    serve = ["serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit", clients__count=1, clients__budgets="[1.0]"), "--listen",
             "127.0.0.1:0", "--allow", tmp_path / "keys.txt", "--insecure", "--out"]
    for threads in (0, 1, 40, 65):  # one waits for idle connections, 64 answer, one listens
        assert one_line(limited(*serve, tmp_path / f"run-{threads}", THREADS=threads)).endswith(NO_THREADS)


def test_a_node_that_cannot_start_its_threads_is_reported(limited, tiny_model, tmp_path):
    (key,), log = keygen(tmp_path, 1), tmp_path / "serve.log"
    serve = ["serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit", clients__count=1, clients__budgets="[1.0]"), "--listen",
             "127.0.0.1:0", "--allow", tmp_path / "keys.txt", "--insecure", "--out", tmp_path / "run"]
    with Processes() as processes:
        processes.start(*serve, log=log)
        wait_until(lambda: "listening at" in log.read_text(), log)
        address = log.read_text().split("listening at http://", 1)[1].split()[0]
        assert one_line(limited(*node_arguments(key, tiny_model, address), THREADS=0)).endswith(NO_THREADS)


@pytest.mark.parametrize("flag", ["--ranks", "--jobs"])
def test_processes_that_cannot_be_started_are_reported(flag, limited, tmp_path):
    (tmp_path / "study.toml").write_text(f'[study]\nbase = "{CONFIG}"\nseeds = [1, 2]\nreference = "fedit"\nendpoint = "accuracy"\n'
                                         '[[study.arm]]\nname = "fedit"\nset = ["method.name=fedit"]\n'
                                         '[[study.arm]]\nname = "flora"\nset = ["method.name=flora"]\n')
    common = words(tmp_path / "run", threads=1)
    if flag == "--jobs":
        changes = [word for word in common[4:] if word != "--set" and "method.name" not in word]
        common = ["study", tmp_path / "study.toml", "--out", tmp_path / "run", *(word for change in changes for word in ("--set", change))]
    done = limited(*common, flag, 2, PROCESSES=0)
    assert one_line(done).endswith(f"no more processes can be started (ulimit -u, pids.max): lower {flag}"), done.stderr


# --- folders and files ---

def test_a_temporary_folder_that_is_gone_is_reported_in_one_line_for_all_ranks(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    done = started(*words(tmp_path / "run", threads=1), "--ranks", 2)
    assert done.stderr == "evenkeel: [io] TMPDIR is /nonexistent, which is no folder; cluster.scratch names another\n" and done.returncode == 1
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    one_line(started(*words(tmp_path / "run", threads=1), "--ranks", 2), f"TMPDIR is {tmp_path}/file, which is no folder; cluster.scratch")
    done = started(*words(tmp_path / "run", threads=1, cluster__scratch=f'"{tmp_path}/scratch"'), "--ranks", 2)
    assert done.returncode == 0, done.stderr


def test_a_temporary_folder_that_is_gone_on_one_machine_is_named_by_all_ranks(tmp_path):
    address = f"127.0.0.1:{free_port()}"
    words_of = [*words(tmp_path / "run", threads=1, cluster__store=f'"{address}"', cluster__size=2)]
    ranks = [subprocess.Popen([PROGRAM, *map(str, words_of), "--set", f"cluster.rank={rank}"], stderr=subprocess.PIPE, text=True, cwd=ROOT,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": folder}) for rank, folder in ((0, "/tmp"), (1, "/nonexistent"))]
    said = [rank.communicate(timeout=600)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [1, 1], said
    for text in said:
        assert "TMPDIR is /nonexistent, which is no folder; cluster.scratch names another" in text.splitlines()[-1], said


def test_a_file_that_may_not_grow_is_reported_with_the_limit(tmp_path):
    done = started("init", "configs/tiny/model.json", "--seed", "3", "--out", tmp_path / "model",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
    one_line(done, "[io]", "File too large (ulimit -f")
    assert list(tmp_path.iterdir()) == []


def test_too_many_open_files_are_reported_with_the_limit(tiny_model):
    done = started("evaluate", "--model", tiny_model, "--tasks", "builtin:facts", "--limit", "1",
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3)))
    if done.returncode != 127:  # the dynamic loader fails before the program starts
        one_line(done, "Too many open files (ulimit -n)")


def test_a_name_that_is_too_long_is_reported_with_the_limit(tmp_path):
    one_line(started(*words(tmp_path / ("n" * 300))), "File name too long (most file systems take 255 bytes a name")
    one_line(started("init", "configs/tiny/model.json", "--seed", "3", "--out", tmp_path / ("n" * 300)), "File name too long (most")


def test_a_read_only_file_system_is_named(tmp_path):
    """/proc and /sys take no folders. A mount needs rights that a test may not have."""
    mount = f"mount -t tmpfs -o ro none {tmp_path} && exec {shlex.join([PROGRAM, *map(str, words(tmp_path / 'run'))])}"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", mount], capture_output=True, text=True, cwd=ROOT, timeout=600)
    if done.returncode != 1 or "evenkeel:" not in done.stderr:
        pytest.skip(f"no mount: {done.stderr}")
    one_line(done, "Read-only file system (findmnt -T")
