"""Tests tools/ninja: a build shows its progress, also without a terminal."""

import os
import re
import subprocess

from tiny import ROOT

RULES = """rule step
  command = sleep $seconds && $then touch $out
  description = Building CXX object $out
build a: step
  seconds = 0.1
  then =
build b: step a
  seconds = 2.5
  then = {last}
"""


def build(folder, last=""):
    (folder / "build.ninja").write_text(RULES.format(last=last))
    return subprocess.run([ROOT / "tools" / "ninja", "-C", folder], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "EVERY": "1"})


def test_progress_and_seconds_are_shown_during_a_long_step(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0 and (tmp_path / "b").exists()
    shown = done.stdout.splitlines()
    assert len([line for line in shown if line.startswith("[1/2] a, ")]) >= 2, done.stdout
    assert shown[-1].startswith("[2/2] b, ") and len(shown) <= 5, done.stdout
    again = build(tmp_path)
    assert again.returncode == 0 and again.stdout == ""


def test_remaining_time_is_estimated_from_completed_steps(tmp_path):
    steps = "".join(f"build s{i}: step {f's{i - 1}' if i else ''}\n  seconds = 0.5\n  then =\n" for i in range(8))
    (tmp_path / "build.ninja").write_text(RULES.partition("build a")[0] + steps)
    done = subprocess.run([ROOT / "tools" / "ninja", "-C", tmp_path], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "EVERY": "1"})
    shown = re.findall(r"^\[(\d)/8\] s\d, (\d+) s, about (\d+) s left$", done.stdout, re.MULTILINE)
    assert shown, done.stdout
    for finished, seconds, left in ((int(word) for word in words) for words in shown):
        assert left == seconds * (8 - finished) // finished
    assert "left" not in done.stdout.splitlines()[-1]


def test_progress_on_a_terminal_overwrites_one_line(tmp_path):
    (tmp_path / "build.ninja").write_text(RULES.format(last=""))
    done = subprocess.run(["script", "-qec", f"{ROOT / 'tools' / 'ninja'} -C {tmp_path}", "/dev/null"], capture_output=True,
                          timeout=600, stdin=subprocess.DEVNULL)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1, done.stdout
    assert done.stdout.rstrip().rpartition(b"\r\x1b[K")[2].startswith(b"[2/2] b, ")


def packages(stage):
    """Returns the packages that a stage of tools/setup installs on a bare machine."""
    text = (ROOT / "tools/setup").read_text()
    query = re.search(r"awk -v stage=\"\$1\" '([^']+)' tools/packages.txt", text)[1]
    return subprocess.run(["awk", "-v", f"stage={stage}", query, ROOT / "tools/packages.txt"], capture_output=True, text=True,
                          check=True).stdout.split()


def test_each_stage_installs_its_own_packages_and_those_of_the_stages_before():
    assert set(packages("build")) < set(packages("test")) and len(packages("test")) == 23
    assert not {"clang-19", "libclang-rt-19-dev", "libgtest-dev", "libbenchmark-dev", "clang-format", "universal-ctags"} & set(packages("build"))
    assert set(packages("nightly")) - set(packages("test")) == {"chromium", "texlive-latex-base", "texlive-latex-recommended"}
    assert {"g++", "cmake", "ninja-build", "libspdlog-dev", "python3-venv"} <= set(packages("build"))


def test_output_of_a_failed_step_is_complete_and_fails_the_build(tmp_path):
    done = build(tmp_path, last="echo 'b.cpp:1: no' && echo '  such thing' && false &&")
    assert done.returncode == 1
    assert "FAILED: b" in done.stdout and "\nb.cpp:1: no\n  such thing\n" in done.stdout
