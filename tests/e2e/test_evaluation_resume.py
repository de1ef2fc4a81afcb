"""Tests that a killed evaluation continues after its last batch to the same records, and the options of batches and
caches.
"""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, succeed, without_seconds

EVALUATION = ("--tasks", "builtin:sizes", "--limit", "40", "--budget", "0.5,1", "--batch-size", "4", "--json")


def killed_after(count, file, *words):
    """Runs the program until `file` has the given number of lines, and kills it. Begins again if it ends before that is seen."""
    for _ in range(100):
        process = subprocess.Popen([PROGRAM, *map(str, words)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, "OMP_NUM_THREADS": "1"})
        while process.poll() is None and written(file).count(b"\n") < count:
            time.sleep(0.001)
        process.kill()
        if process.wait() == -signal.SIGKILL and written(file).count(b"\n") >= count:
            return written(file)
        shutil.rmtree(file.parent) if words[0] == "train" else file.unlink()
    raise AssertionError("the program was always faster than this test")


def written(file):
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def scores(done):
    return without_seconds([json.loads(line) for line in done.stdout.splitlines()])


def test_a_run_killed_during_an_evaluation_continues_it(tiny_model, tmp_path):
    changes = settings(model__path=tiny_model, train__rounds=1, evaluate__limit=40, evaluate__batch_size=3,
                       evaluate__tasks='["builtin:sizes"]', data__limit=30, method__name="fedit")
    succeed("train", CONFIG, "--out", tmp_path / "whole", *changes)
    run = tmp_path / "run"
    before = killed_after(3, run / "evaluating.jsonl", "train", CONFIG, "--out", run, *changes)
    assert not lines(run / "evaluations.jsonl") or before
    succeed("train", CONFIG, "--out", run, "--resume")
    assert without_seconds(lines(run / "evaluations.jsonl")) == without_seconds(lines(tmp_path / "whole/evaluations.jsonl"))
    assert not (run / "evaluating.jsonl").exists()


@pytest.mark.parametrize("of", ["model", "run"])
def test_a_killed_evaluate_continues_from_its_journal(of, tiny_model, small_run, tmp_path):
    journal = tmp_path / "answers.jsonl"
    source = ("--model", tiny_model) if of == "model" else ("--run", small_run)
    whole = succeed("evaluate", *source, *EVALUATION)
    before = killed_after(4, journal, "evaluate", *source, *EVALUATION, "--journal", journal)
    assert scores(succeed("evaluate", *source, *EVALUATION, "--journal", journal)) == scores(whole)
    after = journal.read_bytes()
    assert after.startswith(before[:before.rindex(b"\n") + 1]) and after.count(b"\n") == 20
    succeed("evaluate", *source, *EVALUATION, "--journal", journal)
    assert journal.read_bytes() == after  # all answers came from the journal
    succeed("evaluate", *source, *EVALUATION, "--journal", journal, "--max-new-tokens", "5")
    assert journal.read_bytes().count(b"\n") == 40  # another evaluation; the answers of the first one are still stored


def test_a_damaged_line_of_a_journal_is_reported_and_computed_again(tiny_model, tmp_path):
    journal = tmp_path / "answers.jsonl"
    words = ("evaluate", "--model", tiny_model, *EVALUATION, "--journal", journal)
    whole = succeed(*words)
    text = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(text[:3] + [text[3].replace("answers", "Answers")] + text[4:]))
    again = succeed(*words)
    assert "line 4" in again.stderr and "made again" in again.stderr and scores(again) == scores(whole)
    one_line(evenkeel("evaluate", "--model", tiny_model, *EVALUATION, "--journal", tmp_path), tmp_path)


def test_predictions_are_complete_even_if_scores_do_not_need_them(tiny_model, tmp_path):
    words = ("evaluate", "--model", tiny_model, "--tasks", "builtin:sizes", "--limit", "20", "--json")
    file = tmp_path / "predictions.jsonl"
    assert scores(succeed(*words, "--predictions", file)) == scores(succeed(*words))
    whole = succeed(*words, "--predictions", tmp_path / "again.jsonl", "--journal", tmp_path / "journal.jsonl")
    assert file.read_text() == (tmp_path / "again.jsonl").read_text() and scores(whole)


def test_cache_settings_apply_to_an_evaluation(tiny_model, tmp_path):
    changes = settings(model__path=tiny_model, train__rounds=1, evaluate__limit=12, evaluate__batch_size=6,
                       evaluate__tasks='["builtin:sizes"]', data__limit=30, method__name="fedit")
    succeed("train", CONFIG, "--out", tmp_path / "run", *changes)
    one_by_one = [*changes, *settings(evaluate__cache_gib=1e-9, evaluate__cache="bfloat16")]
    journal = killed_after(12, tmp_path / "small/evaluating.jsonl", "train", CONFIG, "--out", tmp_path / "small",
                           *one_by_one)
    assert all(len(json.loads(line)["answers"]) == 1 for line in journal.splitlines() if line.endswith(b"}"))
    succeed("train", CONFIG, "--out", tmp_path / "small", "--resume")
    assert len(lines(tmp_path / "small/evaluations.jsonl")) == len(lines(tmp_path / "run/evaluations.jsonl"))
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "bad", *changes, *settings(evaluate__cache_gib=0)), "cache_gib")
