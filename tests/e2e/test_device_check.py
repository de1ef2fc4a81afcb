"""Tests that the parts of bench/device_check fail where what they check is wrong. Programs are replaced by small scripts."""

import argparse
import json
import os
import pathlib
import sys
import time
import types

import pytest

from tiny import ROOT, nightly

sys.path[:0] = [str(ROOT / "bench/device_check")]
import device_check  # noqa: E402
import parts  # noqa: E402


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


def check_with(folder):
    """Returns a check whose programs are scripts of `folder`."""
    options = argparse.Namespace(device="cpu", programs=folder, work=folder, out=folder / "check.json", tiny=True, seconds=60, data=None, tokenizer=None,
                                 simulate=None)
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
    check.figures["steps"] = {shape: {"ms": 1.0, "ours": {"losses": [3.0, ours], "peak_gib": 1.0}}, "part_seconds": 2.5}
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


def test_budgets_of_the_parts_keep_to_ten_minutes_and_the_first_five_decide():
    names = list(parts.PARTS)
    first = names[:names.index("workers") + 1]
    assert first == ["launch", "profile", "methods", "replay", "workers"]
    assert sum(parts.PARTS[name][2] for name in first) <= 330
    assert all(0 <= least <= most for _, least, most in parts.PARTS.values())
    assert device_check.parse(["--work", "."]).seconds + device_check.GRACE < 600


@pytest.mark.parametrize("run", [lambda check, figures: check.program("sleeps"), lambda check, figures: time.sleep(60)], ids=["program", "in-process"])
def test_a_part_that_overruns_its_budget_is_ended_and_the_next_one_runs(tmp_path, monkeypatch, run):
    script(tmp_path / "sleeps", "exec sleep 60\n")
    monkeypatch.setattr(device_check, "GRACE", 1)
    monkeypatch.setattr(parts, "PARTS", {"slow": (run, 0, 1), "next": (lambda check, figures: figures.update(done=True), 0, 1)})
    check = check_with(tmp_path)
    check.options.tiny = False
    begin = time.monotonic()
    assert "ended after" in failure(check, "slow") and time.monotonic() - begin < 20
    assert failure(check, "next") == "" and json.loads((tmp_path / "check.json").read_text())["next"]["done"]


FEDERATED = r"""
for word; do case $before in --out) out=$word ;; --ranks) ranks=$word ;; esac; before=$word; case $word in method.name=*) method=${word#*=} ;; esac; done
[ ! -e $out ] || exit 9
[ "$method$ranks" != "%(fails)s" ] || { echo "no memory left" >&2; exit 1; }
mkdir -p $out/adapter
client='{"seconds": 3.0, "steps": 2, "tokens": 90}'
echo '{"loss": 2.5, "steps": 6, "seconds": {"round": 9.0}, "clients": ['"$client, $client, $client"']}' >$out/rounds.jsonl
printf "%(bits)s" >$out/adapter/adapter_model.safetensors
"""


def test_a_method_that_fails_is_recorded_beside_the_others(tmp_path):
    script(tmp_path / "evenkeel", FEDERATED % {"fails": "smoe-llb", "bits": ""})
    (tmp_path / "model").mkdir()
    check = check_with(tmp_path)
    assert "failed: smoe-llb" in failure(check, "methods")
    told = json.loads((tmp_path / "check.json").read_text())["methods"]
    assert [told[name]["ms_of_full_budget"] for name in ("fedit", "ub-smoe", "hetlora")] == [1500] * 3
    assert "no memory left" in told["smoe-llb"]["failed"] and not (tmp_path / "fedit").exists()


@pytest.mark.parametrize("error, says", [(2e-3, ""), (4e-3, "further from float64 than operators: sum"), (float("nan"), "sum")])
def test_a_kernel_that_is_worse_than_its_operators_fails_the_part(tmp_path, error, says):
    told = json.dumps({"what": "sum", "error": error, "operators_error": 2e-3})
    script(tmp_path / "kernel_rates", f"echo '{told}'\n")
    said = failure(check_with(tmp_path), "kernels")
    assert says in said if says else said == ""


@pytest.mark.parametrize("fails, bits, says, equal", [("none", "same", "", True), ("none", "$ranks", "adapters of different numbers of workers differ", False),
                                                      ("4", "same", "failed with 4 workers", True)])
def test_workers_must_give_equal_adapters(tmp_path, fails, bits, says, equal):
    script(tmp_path / "evenkeel", FEDERATED % {"fails": fails, "bits": bits})
    (tmp_path / "model").mkdir()
    (tmp_path / "workers-1").mkdir()  # of an earlier check
    check = check_with(tmp_path)
    said = failure(check, "workers")
    assert says in said if says else said == ""
    assert check.figures["workers"]["equal"] == equal and {"1", "2", "4"} <= set(check.figures["workers"])


@pytest.mark.parametrize("bits, says, equal", [("same", "", True), ("$EVENKEEL_MOST_GRAPHS", "a run that replays its passes has another adapter", False)])
def test_a_replay_that_differs_fails_the_part(tmp_path, bits, says, equal):
    script(tmp_path / "evenkeel", FEDERATED % {"fails": "none", "bits": bits})
    (tmp_path / "model").mkdir()
    check = check_with(tmp_path)
    check.programs_device = "cuda"
    said = failure(check, "replay")
    assert says in said if says else said == ""
    assert check.figures["replay"]["equal"] == equal and {"replayed", "padded", "plain"} <= set(check.figures["replay"])


PROGRAMS = pathlib.Path(os.environ["EVENKEEL_PROGRAM"]).parent
SIMULATED = PROGRAMS / "tests/libsimulated_gpu.so"


@pytest.mark.skipif(not (PROGRAMS / "launch_costs").is_file(), reason=f"not there: {PROGRAMS}/launch_costs")
@pytest.mark.parametrize("simulated", [pytest.param(False, marks=nightly), pytest.param(True, marks=pytest.mark.skipif(not SIMULATED.is_file(), reason=f"not there: {SIMULATED}"))],
                         ids=["processor", "simulated GPU"])
def test_the_parts_that_decide_run_without_a_gpu(tmp_path, simulated):
    """What needs a real GPU says so by its name. Four clients of a small model take the place of the large ones."""
    words = ["--device", "cpu", "--tiny", "--programs", PROGRAMS, "--work", tmp_path / "work", "--out", tmp_path / "out.json", "--seconds", 800,
             "--parts", "launch", "profile", "methods", "replay", "workers", "kernels", "cublas", *(["--simulate", SIMULATED] if simulated else [])]
    code = os.spawnv(os.P_WAIT, sys.executable, [str(word) for word in [sys.executable, ROOT / "bench/device_check/device_check.py", *words]])
    told = json.loads((tmp_path / "out.json").read_text())
    assert code == 0, {name: part.get("failed") for name, part in told.items() if isinstance(part, dict)}
    assert told["machine"]["simulated"] == simulated and told["machine"]["processor"]
    measured = {name for name, line in told["launch"].items() if isinstance(line, dict) and line.get("us", 0) > 0}
    assert measured == {"add_ of one number on the processor", "allocation", "add_ of one number", "mm with 8 columns", "_grouped_mm"}
    assert all("real GPU" in told["launch"][name]["skipped"] for name in ("empty kernel", "node of a graph"))
    assert all(told["profile"][shape]["operators"] for shape in parts.TINY_SHAPES)
    assert all(told["methods"][name]["ms_of_small_budget"] > 0 for name in ("fedit", "ub-smoe", "smoe-llb", "hetlora"))
    assert told["replay"]["equal"] if simulated else "recorded on a GPU" in told["replay"]["skipped"]
    assert told["workers"]["equal"] and len({told["workers"][count]["hash"] for count in "124"}) == 1
    rates = [line for line in told["kernels"].values() if isinstance(line, dict)]
    assert len(rates) == 8 and all("GPU" in line["skipped"] for line in rates)
    assert "cuBLAS" in told["cublas"]["unset"]["skipped"] and told["cublas"]["slower_than_unset"] > 0
