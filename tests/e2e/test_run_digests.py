"""Tests tools/run_digests.py: what it compares, and that a change of a score or of a run's course is noticed."""

import json
import subprocess
import sys

import pytest

from tiny import PROGRAM, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import run_digests  # noqa: E402


def put_run(folder, likelihoods=(-1.5, -2.5), **changes):
    """Writes the files of a run that digests are made of: one score of three rows, two of which have a likelihood."""
    score = {"round": 1, "task": "facts", "budget": 0.5, "rank_eval_mode": "", "rows": 3, "accuracy": 0.5, "log_likelihood": -2.0,
             "likelihood_rows": 2, "seconds": 1.0} | changes
    item = {"round": 1, "task": "facts", "budget": 0.5, "rank_eval_mode": "", "served_by": "run", "log_likelihood": list(likelihoods)}
    for name in ("adapter", "items"):
        (folder / name).mkdir(parents=True)
    (folder / "adapter/adapter_config.json").write_text("{}")
    (folder / "rounds.jsonl").write_text('{"round": 1, "loss": 3.5, "seconds": {"round": 2}}\n')
    (folder / "evaluations.jsonl").write_text(json.dumps(score) + "\n")
    (folder / "items/round-1.jsonl").write_text(json.dumps(item) + "\n")
    return folder


def digests(folder, **changes):
    return run_digests.digests(put_run(folder, **changes))


def changed_parts(one, other):
    return {part for part in one if one[part] != other[part]}


def test_each_score_has_its_digest_and_times_have_none(tmp_path):
    one = digests(tmp_path / "one")
    assert set(one) == {"adapter", "rounds.jsonl", "evaluations.jsonl", "log_likelihood", "likelihood_rows"}
    assert changed_parts(one, digests(tmp_path / "time", seconds=9.0)) == set()
    assert changed_parts(one, digests(tmp_path / "accuracy", accuracy=0.75)) == {"evaluations.jsonl"}
    assert changed_parts(one, digests(tmp_path / "likelihood", log_likelihood=-2.000001)) == {"log_likelihood"}
    assert changed_parts(one, digests(tmp_path / "rows", likelihoods=(-2.0,), likelihood_rows=1)) == {"likelihood_rows"}


@pytest.mark.parametrize("changes", [{"log_likelihood": -2.1}, {"log_likelihood": None}, {"likelihood_rows": 3}, {"likelihood_rows": None},
                                     {"likelihoods": ()}, {"likelihoods": (2.0,), "log_likelihood": 2.0, "likelihood_rows": 1}, {"rows": 1}])
def test_a_likelihood_that_its_rows_do_not_have_is_an_error(tmp_path, changes):
    with pytest.raises(RuntimeError, match="the score"):
        digests(tmp_path / "run", **changes)


def test_a_missing_digest_differs_unless_the_older_file_lacks_the_field():
    new = {"a": "1", "rounds.jsonl": "2", "log_likelihood": "3", "likelihood_rows": "4"}
    old = {"a": "1", "rounds.jsonl": "2"}
    assert run_digests.differences({"x": new}, {"x": new}) == ([], [])
    assert run_digests.differences({"x": new}, {"x": old}) == ([], ["likelihood_rows", "log_likelihood"])
    assert run_digests.differences({"x": new}, {"x": new | {"log_likelihood": "0"}})[0] == ["x: log_likelihood"]
    assert run_digests.differences({"x": new}, {"x": {"a": "1"}})[0] == ["x: rounds.jsonl is not in the older file"]
    assert len(run_digests.differences({"x": new}, {"y": new})[0]) == 4


def test_a_resumed_run_must_be_the_plain_one():
    found = {"sparse/flora": {"adapter": "1"}, "resumed/flora": {"adapter": "1"}, "ranks/flora": {"adapter": "2"}, "resumed/fedit": {"adapter": "3"}}
    assert run_digests.unlike_plain(found) == ["ranks/flora: adapter is not that of sparse/flora"]


def test_a_run_that_ends_before_it_is_killed_is_an_error(tmp_path):
    """The program writes all rounds at once and ends, or waits for the signal with all rounds done."""
    for name, end in (("ended", "exit 0"), ("done", "exec sleep 60")):
        out, program = tmp_path / name / "run", tmp_path / f"{name}.sh"
        out.mkdir(parents=True)
        program.write_text(f"#!/bin/sh\nprintf '1\\n2\\n3\\n' >{out}/rounds.part && mv {out}/rounds.part {out}/rounds.jsonl\n{end}\n")
        program.chmod(0o755)
        with pytest.raises(RuntimeError, match="was not killed between two rounds"):
            run_digests.Runner(program, tmp_path).resumed(out, ["train"])


def run_tool(*words):
    return subprocess.run([sys.executable, ROOT / "tools/run_digests.py", "--program", PROGRAM, "--only", "sparse/fedit", *words],
                          capture_output=True, text=True, timeout=600)


def test_the_tool_compares_with_a_stored_file(tmp_path):
    """The same run twice, beside digests of which one was changed, and one is of a field that old files lack."""
    stored = tmp_path / "stored.json"
    done = run_tool("--out", stored)
    assert done.returncode == 0 and done.stdout == "1 runs, 0 failed, 0 digests differ\n", done.stdout + done.stderr
    known = json.loads(stored.read_text())
    known["sparse/fedit"]["log_likelihood"] = "0" * 64
    del known["sparse/fedit"]["likelihood_rows"]
    stored.write_text(json.dumps(known))
    done = run_tool("--out", tmp_path / "out.json", "--compare", stored)
    assert done.returncode == 1 and "has no digests of likelihood_rows: they are compared" in done.stdout
    assert "sparse/fedit: log_likelihood\n1 runs, 0 failed, 1 digests differ\n" in done.stdout, done.stdout + done.stderr
