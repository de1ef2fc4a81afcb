"""Tests that the parts of bench/device_check fail where what they check is wrong. Programs are replaced by small scripts."""

import argparse
import json
import os
import pathlib
import sys
import types

import pytest

from tiny import ROOT

sys.path[:0] = [str(ROOT / "bench/device_check")]
import device_check  # noqa: E402
import parts  # noqa: E402


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def check_with(folder):
    """Returns a check whose programs are scripts of `folder`."""
    options = argparse.Namespace(device="cpu", programs=folder, work=folder, out=folder / "check.json", tiny=True, seconds=60, data=None, tokenizer=None)
    return device_check.Check(options)


def failure(check, part):
    """Runs a part as device_check does. Returns its failure, or an empty text."""
    device_check.run_part(check, part)
    return check.figures[part].get("failed", "")


def results(*tests):
    suite = [{"name": name, "result": result, **({"failures": [{}]} if failed else {})} for name, result, failed in tests]
    return json.dumps({"tests": len(suite), "testsuites": [{"name": "Aten", "testsuite": suite}]})


@pytest.mark.parametrize("told, says", [
    (results(("One", "COMPLETED", False)), ""), (results(("One", "COMPLETED", True)), "3 of 3 tests failed"),
    (results(), "ran none of the tests"), (results(("One", "SKIPPED", False)), "ran none of the tests")])
def test_a_failed_test_or_none_at_all_fails_the_part(tmp_path, told, says):
    for name in ("nn_test", "scoring_test", "models_test"):
        script(tmp_path / name, f"cat >{tmp_path}/{name}.json <<'END'\n{told}\nEND\n")
    said = failure(check_with(tmp_path), "tests")
    assert says in said if says else said == ""
    assert ("failed" in json.loads((tmp_path / "check.json").read_text())["tests"]) == bool(says)


RUN = r"""
for word; do case $before in --out) out=$word ;; esac; before=$word; case $word in --resume) resumes=yes ;; esac; done
mkdir -p $out/adapter
[ -n "$resumes" ] || case $out in */killed) %(killed)s ;; esac
printf '1\n2\n3\n' >$out/rounds.jsonl
printf %(bits)s >$out/adapter/adapter_model.safetensors
"""
STOPS = r"printf '1\n' >$out/rounds.jsonl; exec sleep 60"


@pytest.mark.parametrize("killed, bits, says", [
    (STOPS, "same", ""), (STOPS, "$out", "the adapters differ"),
    ("exit 0", "same", "no run was killed between two of its 3 rounds: it had 0"), ("true", "same", "it had 3"),
    (r"printf '1\n2\n3\n' >$out/part; mv $out/part $out/rounds.jsonl; exec sleep 60", "same", "it had 3")])
def test_bits_are_equal_only_if_a_run_was_killed_with_rounds_left(tmp_path, killed, bits, says):
    script(tmp_path / "evenkeel", RUN % {"killed": killed, "bits": bits})
    check = check_with(tmp_path)
    said = failure(check, "bits")
    assert says in said if says else said == ""
    assert check.figures["bits"].get("equal", False) == (not says)


@pytest.mark.parametrize("ours, says", [(3.0, ""), (3.1, "losses are apart"), (float("nan"), "losses are apart"), (float("inf"), "losses are apart")])
def test_losses_that_are_far_from_the_peers_fail_the_part(tmp_path, ours, says):
    check = check_with(tmp_path)
    (tmp_path / "model").mkdir()
    shape = parts.TINY_SHAPES[0]
    check.figures["steps"] = {shape: {"ms": 1.0, "ours": {"losses": [3.0, ours], "peak_gib": 1.0}}}
    told = {"shape": shape, "seconds": [1.0] * (parts.WARM_UP + 1), "losses": [3.0, 3.0], "peak_gib": 1.0}
    check.peer = types.MethodType(lambda self, *arguments, on_line, **options: on_line(json.dumps(told)), check)
    said = failure(check, "peer")
    assert says in said if says else said == ""


def test_a_failed_part_is_the_exit_code(tmp_path):
    script(tmp_path / "evenkeel", "exit 3\n")
    words = [sys.executable, ROOT / "bench/device_check/device_check.py", "--device", "cpu", "--tiny", "--programs", tmp_path, "--work", tmp_path / "work",
             "--out", tmp_path / "out.json", "--parts", "bits"]
    assert os.spawnv(os.P_WAIT, sys.executable, [str(word) for word in words]) == 1
    assert "failed" in json.loads(pathlib.Path(tmp_path / "out.json").read_text())["bits"]
