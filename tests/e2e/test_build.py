"""Tests tools/ninja: a build shows its progress, also without a terminal."""

import os
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
    return subprocess.run([ROOT / "tools" / "ninja", "-C", folder], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "EVERY": "1"})


def test_progress_and_seconds_are_shown_during_a_long_step(tmp_path):
    done = build(tmp_path)
    assert done.returncode == 0 and (tmp_path / "b").exists()
    shown = done.stdout.splitlines()
    assert len([line for line in shown if line.startswith("[1/2] a, ")]) >= 2, done.stdout
    assert shown[-1].startswith("[2/2] b, ") and len(shown) <= 5, done.stdout
    again = build(tmp_path)
    assert again.returncode == 0 and again.stdout == ""


def test_output_of_a_failed_step_is_complete_and_fails_the_build(tmp_path):
    done = build(tmp_path, last="echo 'b.cpp:1: no' && echo '  such thing' && false &&")
    assert done.returncode == 1
    assert "FAILED: b" in done.stdout and "\nb.cpp:1: no\n  such thing\n" in done.stdout
