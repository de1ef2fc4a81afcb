"""Tests run_python.py: a test that crashes or hangs does not prevent the others from running."""

import os
import subprocess
import sys

import pytest

from tiny import ROOT

GOOD = "def test_good(): pass\ndef test_bad(): assert 0\n"
CRASH = "import os, signal\ndef test_first(): pass\ndef test_crash(): os.kill(os.getpid(), signal.SIGSEGV)\ndef test_behind(): pass\n"
HANG = "import time\ndef test_hang(): time.sleep(600)\ndef test_behind(): pass\n"


def run_tests(folder, *options, seconds="600", **files):
    """Returns the exit code and the lines of a run over files with this content."""
    for name, content in files.items():
        (folder / f"test_{name}.py").write_text(content)
    words = [sys.executable, ROOT / "tests/run_python.py", *options, *sorted(folder.glob("test_*.py"))]
    done = subprocess.run([*map(str, words), "-vv", "--rootdir", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=600, cwd=folder, env={**os.environ, "EVENKEEL_TEST_SECONDS": seconds})
    return done.returncode, done.stdout.splitlines()


def count(lines, text):
    return sum(text in line for line in lines)


def test_a_crash_is_one_failure_and_later_tests_run(tmp_path):
    code, said = run_tests(tmp_path, a=CRASH, b="def test_other(): pass\n")
    assert code == 1 and "FAILED test_a.py::test_crash ended its process (exit code -11)" in said, said
    assert [count(said, f"{name} PASSED") for name in ("test_first", "test_behind", "test_other")] == [1, 1, 1], said


def test_a_hang_times_out_with_a_traceback_and_later_tests_run(tmp_path):
    code, said = run_tests(tmp_path, seconds="10", a=HANG, b="def test_other(): pass\n")
    assert code == 1 and count(said, "FAILED test_a.py::test_hang ended its process") == 1, said
    assert count(said, "in test_hang") >= 1 and count(said, "test_behind PASSED") == count(said, "test_other PASSED") == 1, said


@pytest.mark.parametrize("broken", ["import os\nos._exit(3)\n", "import nowhere\n", "def test_(:\n"], ids=["ends", "import", "syntax"])
def test_an_unreadable_file_is_a_failure_and_other_files_run(broken, tmp_path):
    code, said = run_tests(tmp_path, a=broken, b="def test_other(): pass\n", c="def test_last(): pass\n")
    assert code == 1 and count(said, "test_a.py") >= 1, said
    assert count(said, "test_other PASSED") == count(said, "test_last PASSED") == 1, said


def test_failures_before_a_crash_count_and_only_all_passing_is_success(tmp_path):
    assert run_tests(tmp_path, a=GOOD)[0] == 1
    code, said = run_tests(tmp_path, a=GOOD, b=CRASH)
    assert code == 1 and count(said, "test_bad FAILED") == 1
    (tmp_path / "test_b.py").unlink()
    assert run_tests(tmp_path, a="import pytest\ndef test_good(): pass\ndef test_skipped(): pytest.skip('no data')\n")[0] == 0


def test_shards_share_the_files(tmp_path):
    files = {name: f"def test_{name}(): pass\n" for name in "abcde"}
    said = [run_tests(tmp_path, "--shard", f"{i}/2", **files)[1] for i in (1, 2)]
    seen = [[name for name in files if count(lines, f"::test_{name} PASSED")] for lines in said]
    assert seen == [["a", "c", "e"], ["b", "d"]]


def test_processes_left_by_a_test_end_with_the_tests(tmp_path):
    file = tmp_path / "pid"
    code, _ = run_tests(tmp_path, a=f"import subprocess\ndef test_leaves():\n    left = subprocess.Popen(['sleep', '600'])\n"
                                f"    open({str(file)!r}, 'w').write(str(left.pid))\n")
    assert code == 0
    status = f"/proc/{file.read_text()}/status"
    assert not os.path.exists(status) or "State:\tZ" in open(status).read()
