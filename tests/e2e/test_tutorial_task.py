"""Follows docs/tutorial-new-task.md in an empty folder: writes its files and runs its commands."""

import json
import re

from tiny import lines
from tutorial import BUILD_LIMIT, followed_once

followed = followed_once("tutorial-new-task.md")


def test_the_program_builds_in_time_and_passes_the_contract_tests(followed):
    done, seconds = followed[1][0]
    assert seconds < BUILD_LIMIT
    assert int(re.search(r"\[  PASSED  \] (\d+) tests", done.stdout)[1]) > 12 and "FAILED" not in done.stdout


def test_the_new_tasks_are_listed_with_the_others(followed):
    listing = followed[1][1][0].stdout
    assert re.search(r"^sums:larger +the larger of two numbers", listing, re.MULTILINE) and "\nbuiltin:tools" in listing


def test_clients_train_on_the_mixture_and_both_families_are_scored(followed):
    run = followed[0] / "runs/sums"
    assert sum(client["examples"] for client in lines(run / "rounds.jsonl")[0]["clients"]) == 48
    scores = {score["task"]: score for score in lines(run / "evaluations.jsonl") if "served_by" not in score}
    assert list(scores) == ["sums:add", "sums:larger", "builtin:tools"]
    assert "exact_match" in scores["sums:add"] and scores["sums:larger"]["chance"] == 0.5


def test_a_task_alone_is_evaluated_again(followed):
    last = json.loads(followed[1][1][0].stdout.splitlines()[-1])
    assert last["task"] == "sums:larger" and last["rows"] == 4
