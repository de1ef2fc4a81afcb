"""Tests `--progress json`: the events that train and evaluate write for other programs (docs/json-lines.md)."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, settings, started, without_seconds

DOCUMENT = (ROOT / "docs/json-lines.md").read_text()


def events_of(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def train(model, out, *words, **changes):
    changes = {"model__path": model, "train__rounds": 2, "data__limit": 60, "evaluate__limit": 2, "evaluate__budgets": "[1.0]",
               "method__name": "fedit", **changes}
    return evenkeel("train", CONFIG, "--out", out, *settings(**changes), *words)


def kinds(events, *without):
    return [event["event"] for event in events if event["event"] not in without]


def documented():
    """Returns {event: keys} from the tables of docs/json-lines.md."""
    sections = re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", DOCUMENT, re.M | re.S)
    return {name: set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`[^|]*) \|", text, re.M)))) for name, text in sections}


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    out = tmp_path_factory.mktemp("events") / "run"
    return out, train(tiny_model, out, "--progress", "json")


def test_a_run_writes_events_of_rounds_and_scores_and_nothing_else_to_stdout(run):
    out, done = run
    events = events_of(done)
    assert done.returncode == 0
    assert kinds(events, "progress") == ["start", "run", "round", "round"] + ["evaluation"] * 5 + ["done"]
    assert events[0]["version"] == 1 and events[0]["command"] == "train" and events[0]["run"] == str(out) and events[0]["pid"] > 0
    assert events[1]["rounds_done"] == 0 and events[1]["rounds"] == 2 and events[1]["clients"] == 5
    records = lines(out / "rounds.jsonl")
    for event, record in zip([event for event in events if event["event"] == "round"], records, strict=True):
        same = set(event) - {"event", "rounds", "lost", "seconds", "tokens_per_second"}
        assert {key: event[key] for key in same} == {key: record[key] for key in same} and len(same) == 8
        assert event["seconds"] == record["seconds"]["round"] and event["lost"] == len(record.get("lost", []))
    scores = [{key: value for key, value in event.items() if key != "event"} for event in events if event["event"] == "evaluation"]
    assert scores == [{key: value for key, value in line.items() if key != "checksum"} for line in lines(out / "evaluations.jsonl")]
    assert events[-1] == {"event": "done", "run": str(out), "report": f"{out}/report.html", "exit_code": 0}


def test_progress_events_count_up_to_a_constant_total(run):
    told = [event for event in events_of(run[1]) if event["event"] == "progress"]
    steps = [event["steps_done"] + event["steps_left"] for event in told if event["phase"] == "train"]
    assert steps and len(set(steps)) == 1
    assert all(event["done"] <= event["rows"] for event in told if event["phase"] == "evaluate")


def test_events_do_not_change_the_run(run, tiny_model, tmp_path):
    assert train(tiny_model, tmp_path / "run").returncode == 0
    for name in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(tmp_path / "run" / name)) == without_seconds(lines(run[0] / name))


def test_a_resumed_run_writes_events_of_the_remaining_rounds_only(run, tiny_model, tmp_path):
    out = tmp_path / "run"
    train(tiny_model, out)
    done = evenkeel("train", CONFIG, "--out", out, "--resume", "--progress", "json", "--set", "train.rounds=3")
    events = events_of(done)
    assert kinds(events, "progress", "evaluation") == ["start", "run", "round", "done"] and events[1]["rounds_done"] == 2


def test_every_event_and_key_is_documented(run, tiny_model):
    known = documented()
    scored = evenkeel("evaluate", "--model", tiny_model, "--tasks", "builtin", "--limit", 1, "--progress", "json")
    refused = evenkeel("train", "nowhere.toml", "--progress", "json")
    seen = events_of(run[1]) + events_of(scored) + events_of(refused)
    assert {event["event"] for event in seen} == set(known) - {"interrupted", "missing_score"}
    for event in seen:
        if event["event"] != "evaluation":  # its keys are those of evaluations.jsonl
            assert set(event) - {"event"} <= known[event["event"]], event


def test_an_evaluation_writes_its_scores_as_events(tiny_model):
    words = ["evaluate", "--model", tiny_model, "--tasks", "builtin", "--limit", 2, "--budget", "0.5,1"]
    events = events_of(evenkeel(*words, "--progress", "json"))
    assert kinds(events, "progress") == ["start"] + ["evaluation"] * 10 + ["done"]
    scores = [{key: value for key, value in event.items() if key != "event"} for event in events if event["event"] == "evaluation"]
    plain = [json.loads(line) for line in evenkeel(*words, "--json").stdout.splitlines()]
    assert without_seconds(scores) == without_seconds(plain)


def test_json_and_progress_json_exclude_each_other(tiny_model):
    one_line(evenkeel("evaluate", "--model", tiny_model, "--tasks", "builtin", "--json", "--progress", "json"), "--json", "--progress json")


@pytest.mark.parametrize("words, kind", [
    (["train", "nowhere.toml"], "io"), (["train", CONFIG, "--set", "train.rounds=0"], "config"),
    (["train", CONFIG, "--set", "model.path=nowhere"], "checkpoint"), (["train", CONFIG, "--threads", "-1"], "config"),
    (["evaluate", "--model", "nowhere", "--tasks", "builtin"], "checkpoint"), (["evaluate", "--tasks", "builtin"], "config"),
    (["evaluate", "--run", "nowhere"], "io")])
def test_an_error_is_the_last_event_and_is_printed_to_stderr(words, kind, tmp_path):
    done = evenkeel(*words, "--progress", "json", cwd=tmp_path)
    events = events_of(done)
    assert kinds(events) == ["start", "error"] and events[0]["version"] == 1
    assert events[1] == {"event": "error", "kind": kind, "message": one_line(done)[len("evenkeel: "):], "exit_code": 1}


def test_text_is_the_default_output(tiny_model, tmp_path):
    assert re.search(r" log-lik +acc +inv ", train(tiny_model, tmp_path / "a", train__rounds=1).stdout)
    assert train(tiny_model, tmp_path / "b", "--progress", "text", train__rounds=1).stdout.count("{") == 0


def begun(model, out, *more, **options):
    words = [PROGRAM, "train", CONFIG, "--out", out, *settings(model__path=model, train__rounds=60, evaluate__limit=1, method__name="fedit"),
             "--progress", "json", *more]
    process = subprocess.Popen([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
                               env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)
    for line in process.stdout:
        if json.loads(line)["event"] == "round":
            return process
    error = process.stderr.read()
    if "built without" in error:
        pytest.skip("this LibTorch has no Gloo")
    raise AssertionError(error)


def test_an_interruption_is_the_last_event(tiny_model, tmp_path):
    process = begun(tiny_model, tmp_path / "run")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=600)
    last = json.loads(out.splitlines()[-1])
    assert process.returncode == 130 and last["event"] == "interrupted" and last["exit_code"] == 130
    assert "evenkeel: " + last["message"] in error and "--resume" in last["message"]


def test_a_closed_pipe_stops_the_run_at_a_round_from_which_it_resumes(tiny_model, tmp_path):
    process = begun(tiny_model, tmp_path / "run")
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=600) == 130
    last = said.splitlines()[-1]
    assert last.startswith("evenkeel: nobody reads standard output any more") and "--resume" in last and str(tmp_path / "run") in last
    done = len(lines(tmp_path / "run/rounds.jsonl"))
    assert 1 <= done < 60
    resumed = evenkeel("train", CONFIG, "--out", tmp_path / "run", "--resume", "--progress", "json")
    assert resumed.returncode == 0 and events_of(resumed)[1]["rounds_done"] == done


@pytest.mark.parametrize("words", [["train", CONFIG, "--out", "{out}"], ["train", CONFIG, "--out", "{out}", "--ranks", 2],
                                   ["evaluate", "--model", "{model}", "--tasks", "builtin", "--limit", 1]])
def test_a_command_that_nobody_reads_does_not_begin(words, tiny_model, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    words = [str(word).format(out=tmp_path / "run", model=tiny_model) for word in words]
    done = subprocess.run([PROGRAM, *words, "--progress", "json", *(["--set", f"model.path={tiny_model}"] if words[0] == "train" else [])],
                          stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"})
    os.close(writing)
    assert done.returncode == 130 and "evenkeel: nobody reads standard output" in done.stderr.splitlines()[-1], done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_gives_an_error_event_with_the_exit_code(rank, tiny_model, tmp_path):
    process = begun(tiny_model, tmp_path / "run", "--ranks", 2)
    ranks = [int(pid) for pid in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    os.kill(ranks[rank], signal.SIGKILL)
    out, error = process.communicate(timeout=600)
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["event"], last["exit_code"]) == (1, "error", 1), error
    assert "evenkeel: " + last["message"] == error.splitlines()[-1]
    assert last["message"] == f"[io] rank {rank} was killed by signal 9: the others are ended"
    assert sum(json.loads(line)["event"] == "error" for line in out.splitlines()) == 1
    assert '"start"' not in out  # it was the first line, which begun() read


def test_ranks_whose_events_nobody_reads_any_more_are_interrupted(tiny_model, tmp_path):
    process = begun(tiny_model, tmp_path / "run", "--ranks", 2)
    process.stdout.close()
    said = process.stderr.read()
    assert process.wait(timeout=600) == 130 and "nobody reads standard output any more" in said and "--ranks 2" in said


def test_events_that_cannot_be_written_are_an_error(tiny_model, tmp_path):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([PROGRAM, "evaluate", "--model", tiny_model, "--tasks", "builtin", "--limit", "1", "--progress", "json"],
                              stdout=full, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 1 and "standard output: cannot be written" in done.stderr


def test_only_rank_0_writes_events(tiny_model, tmp_path):
    words = settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, method__name="fedit")
    done = started("train", CONFIG, "--out", tmp_path / "run", *words, "--ranks", 2, "--progress", "json")
    if "built without" in done.stderr:
        pytest.skip("this LibTorch has no Gloo")
    events = events_of(done)
    assert done.returncode == 0 and kinds(events).count("start") == kinds(events).count("done") == 1
    assert kinds(events).count("round") == 1 and pathlib.Path(events[0]["run"]) == tmp_path / "run" and time.time() > 0
