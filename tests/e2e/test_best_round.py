"""The best round of a run (evaluate.keep_best) and runs that end early (train.stop)."""

import json
import shutil
import signal
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, one_line, sealed, settings, slow, started, succeed, without_seconds

WEIGHTS = "adapter_model.safetensors"
TASKS = ["builtin:facts", "builtin:sizes"]
BUDGETS = [0.25, 1.0]


def words(model, rounds=4, **changes):
    return settings(model__path=model, **{"method__name": "fedit", "train__rounds": rounds, "data__limit": 30, "evaluate__limit": 2,
                                          "evaluate__every": 1, "evaluate__budgets": BUDGETS, "evaluate__tasks": json.dumps(TASKS), **changes})


def train(model, out, rounds=4, more=(), **changes):
    return succeed("train", CONFIG, "--out", out, *words(model, rounds, **changes), *more)


def best(out):
    text = (out / "best.json").read_text()
    found = json.loads(text)
    assert found["checksum"]
    return found


def values(out, measure="log_likelihood", tasks=TASKS, budgets=BUDGETS):
    """The mean of a measure over tasks and budgets after every round, from the recorded scores."""
    found = {}
    for one in lines(out / "evaluations.jsonl"):
        if one["round"] > 0 and one["task"] in tasks and one["budget"] in budgets:
            found.setdefault(one["round"], []).append(one[measure])
    return {round_: sum(of) / len(of) for round_, of in found.items()}


def stopped_after(of_rounds, patience, min_delta):
    """The round after which the rule ends a run with these values; None: after none."""
    gained, without = None, 0
    for round_, value in of_rounds.items():
        if gained is None or value > gained + min_delta:
            gained, without = value, 0
        else:
            without += 1
        if without >= patience:
            return round_
    return None


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def expect_same(out, reference):
    for part in ("adapter", "best", "checkpoint/best"):
        assert contents(out / part) == contents(reference / part), part
    assert best(out) == best(reference)
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(out / records)) == without_seconds(lines(reference / records)), records
    assert not [path for path in out.rglob("*") if ".part-" in path.name]


@pytest.fixture(scope="module")
def plain(tiny_model, tmp_path_factory):
    """A run without either key."""
    out = tmp_path_factory.mktemp("plain") / "run"
    train(tiny_model, out, train__optimizer__lr=0.1)
    return out


@pytest.fixture(scope="module")
def kept(tiny_model, tmp_path_factory):
    """The same run, which keeps its best round."""
    out = tmp_path_factory.mktemp("kept") / "run"
    train(tiny_model, out, train__optimizer__lr=0.1, evaluate__keep_best="true", evaluate__best__measure="log_likelihood")
    return out


def test_keeping_the_best_round_changes_nothing_else(plain, kept):
    assert contents(plain / "adapter") == contents(kept / "adapter")
    for records in ("rounds.jsonl", "evaluations.jsonl"):
        assert without_seconds(lines(plain / records)) == without_seconds(lines(kept / records))
    assert not (plain / "best").exists() and not (plain / "best.json").exists() and not (plain / "checkpoint/best").exists()


def test_the_best_round_is_that_of_the_recorded_scores(kept):
    of_rounds = values(kept)
    found = best(kept)
    assert [(one["round"], one["value"]) for one in found["evaluated"]] == [pytest.approx(pair) for pair in of_rounds.items()]
    assert found["round"] == max(of_rounds, key=of_rounds.get) and found["value"] == pytest.approx(max(of_rounds.values()))
    assert found["kept"] and found["measure"] == "log_likelihood" and found["tasks"] == TASKS and "stopped" not in found


def test_the_kept_adapter_is_that_of_a_run_which_ends_there(kept, tiny_model, tmp_path):
    round_ = best(kept)["round"]
    assert round_ != 4, "the case needs a best round before the last"
    train(tiny_model, tmp_path / "run", round_, train__optimizer__lr=0.1)
    assert contents(kept / "best") == contents(tmp_path / "run/adapter")
    assert contents(kept / "best")[pytest.importorskip("pathlib").Path(WEIGHTS)] != (kept / "adapter" / WEIGHTS).read_bytes()
    # what is made of a run's last round is made of its best round by --best
    for name, ours, theirs in (("of-best", kept, ["--best"]), ("of-short", tmp_path / "run", [])):
        succeed("export", "--run", ours, *theirs, "--out", tmp_path / name)
    card = contents(tmp_path / "of-best").pop(next(path for path in contents(tmp_path / "of-best") if path.name == "README.md")).decode()
    assert f"after round {round_}" in card
    assert (tmp_path / "of-best" / WEIGHTS).read_bytes() == (tmp_path / "of-short" / WEIGHTS).read_bytes()
    texts = [succeed("generate", "--run", run, *flags, "--prompt", "Is a", "--max-new-tokens", 8).stdout
             for run, flags in ((kept, ["--best"]), (tmp_path / "run", []))]
    assert texts[0] == texts[1]
    scored = [json.loads(line) for line in succeed("evaluate", "--run", kept, "--best", "--json").stdout.splitlines()]
    recorded = [one for one in lines(kept / "evaluations.jsonl") if one["round"] == round_]
    assert [one["log_likelihood"] for one in scored] == [one["log_likelihood"] for one in recorded]


def test_a_run_that_keeps_none_is_named(plain, tmp_path):
    for command in (["export", "--out", tmp_path / "out"], ["generate", "--prompt", "x"], ["evaluate"]):
        one_line(evenkeel(command[0], "--run", plain, "--best", *command[1:]), plain, "keeps no best round", "evaluate.keep_best")
    for command in (["export", "--adapter", plain / "adapter", "--out", tmp_path / "out"], ["generate", "--prompt", "x"],
                    ["evaluate", "--tasks", "builtin"]):
        one_line(evenkeel(command[0], "--model", "builtin:tiny-olmoe", "--best", *command[1:]), "--best goes with --run")


@pytest.mark.parametrize("what, damage", [("best.json", lambda file: file.write_text(file.read_text().replace("round", "sound", 1))),
                                          ("checkpoint/best/round-{}/state.safetensors", lambda file: file.write_bytes(file.read_bytes()[:-1])),
                                          ("checkpoint/best/round-{}/commit.json", lambda file: file.unlink())])
def test_a_damaged_best_round_is_one_line(kept, tmp_path, what, damage):
    out = tmp_path / "run"
    shutil.copytree(kept, out)
    damage(out / what.format(best(out)["round"]))
    one_line(evenkeel("generate", "--run", out, "--best", "--prompt", "x"), "best")
    succeed("generate", "--run", out, "--prompt", "x", "--max-new-tokens", 1)  # the last round is whole


# --- every key changes a run ---

@pytest.mark.parametrize("changes, arguments", [
    ({"measure": "accuracy"}, {"measure": "accuracy"}), ({"budget": 0.25}, {"budgets": [0.25]}),
    ({"tasks": '["builtin:sizes"]'}, {"tasks": ["builtin:sizes"]}), ({"tasks": "builtin:facts", "budget": 1.0}, {"tasks": TASKS[:1], "budgets": [1.0]})])
def test_measure_budget_and_tasks_say_what_is_compared(kept, tiny_model, tmp_path, changes, arguments):
    out = tmp_path / "run"
    train(tiny_model, out, train__optimizer__lr=0.1, evaluate__keep_best="true", **{f"evaluate__best__{key}": value for key, value in changes.items()})
    of_rounds = values(out, **arguments)
    assert [one["value"] for one in best(out)["evaluated"]] == pytest.approx(list(of_rounds.values()))
    assert best(out)["round"] == max(of_rounds, key=of_rounds.get)
    assert [one["value"] for one in best(out)["evaluated"]] != [one["value"] for one in best(kept)["evaluated"]]


@pytest.mark.parametrize("patience, min_delta", [(1, 0.0), (2, 0.0), (1, 100.0), (2, 100.0), (3, 100.0)])
def test_a_run_ends_as_the_rule_says(plain, tiny_model, tmp_path, patience, min_delta):
    out = tmp_path / "run"
    done = train(tiny_model, out, train__optimizer__lr=0.1, train__stop__patience=patience, train__stop__min_delta=min_delta)
    last = stopped_after(values(plain), patience, min_delta)
    ends_early = last is not None and last < 4
    assert ("ends after round" in done.stderr) == ends_early
    if not ends_early:
        assert len(lines(out / "rounds.jsonl")) == 4 and "stopped" not in best(out)
        return
    assert best(out)["stopped"] == {"round": last, "rounds": 4, "patience": patience, "min_delta": min_delta}
    assert not best(out)["kept"] and not (out / "best").exists()
    said, = [line for line in done.stderr.splitlines() if "ends after round" in line]
    for part in (f"round {last} of 4", "train.stop", "log_likelihood", f"in {patience} evaluation", f"best after round {best(out)['round']}"):
        assert part in said
    assert said.split("[train] ")[1] in (out / "log.txt").read_text()
    for records in ("rounds.jsonl", "evaluations.jsonl"):  # those of the run without a rule, up to there
        assert without_seconds(lines(out / records)) == [one for one in without_seconds(lines(plain / records)) if one["round"] <= last]
    status = succeed("status", out).stdout
    assert f"round {last} of {last}" in status and "of 4 rounds (train.stop)" in status and "\ndone\n" in status


# --- stopped, killed, extended ---

STOPS = {"train__optimizer__lr": 0.1, "train__stop__patience": 2, "train__stop__min_delta": 100, "evaluate__keep_best": "true"}


@pytest.fixture(scope="module")
def ended(tiny_model, tmp_path_factory):
    """A run of 6 rounds that ends after round 3, and the time that it took."""
    out = tmp_path_factory.mktemp("ended") / "run"
    begin = time.monotonic()
    started("train", CONFIG, "--out", out, *words(tiny_model, 6, **STOPS))
    assert best(out)["stopped"]["round"] == 3
    return out, time.monotonic() - begin


def test_resuming_a_run_that_has_ended_changes_nothing(ended, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(ended[0], out)
    shutil.rmtree(out / "best")
    (out / "best.json").unlink()
    done = succeed("train", CONFIG, "--out", out, "--resume")
    assert done.stderr.count("the run ends after round 3 of 6 (train.stop)") == 1
    expect_same(out, ended[0])


@pytest.mark.parametrize("when", [0.3, 0.5, 0.7, 0.85])
def test_a_run_that_is_killed_ends_at_the_same_round(ended, tiny_model, tmp_path, when):
    reference, seconds = ended
    out = tmp_path / "run"
    process = subprocess.Popen([PROGRAM, "train", CONFIG, "--out", out, *words(tiny_model, 6, **STOPS)], cwd=ROOT, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    try:
        process.wait(timeout=when * seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.wait()
    again = ["--resume"] if (out / "manifest.json").exists() else []
    succeed("train", CONFIG, "--out", out, *words(tiny_model, 6, **STOPS), *again)
    expect_same(out, reference)


@pytest.mark.parametrize("lost", ["best.json", "checkpoint/best", "best", "the scores of the last round"])
def test_what_a_kill_has_left_unwritten_is_written_by_resume(ended, tmp_path, lost):
    """The files of the best round are written after its scores; round 3 is not the best one here."""
    reference, out = ended[0], tmp_path / "run"
    shutil.copytree(reference, out)
    if lost == "the scores of the last round":
        file = out / "evaluations.jsonl"
        file.write_text("".join(line for line in file.read_text().splitlines(True) if '"round":3,' not in line))
    elif lost == "best.json":
        (out / lost).unlink()
    elif lost == "best":
        (out / "best" / WEIGHTS).write_bytes(b"half")
    else:
        leftover = out / lost / f"round-{best(out)['round']}/state.safetensors.part-1-1"
        leftover.write_bytes(b"half")
    succeed("train", CONFIG, "--out", out, "--resume")
    expect_same(out, reference)


def test_more_rounds_do_not_lift_the_rule(ended, tiny_model, tmp_path):
    """An extended run equals one with that many rounds from its beginning, which ends after the same round."""
    out = tmp_path / "run"
    shutil.copytree(ended[0], out)
    done = succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=8")
    assert "round 3 of 8" in done.stderr
    train(tiny_model, tmp_path / "long", 8, **STOPS)
    expect_same(out, tmp_path / "long")
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.stop.patience=5"), "train.stop.patience is 5", "in the run 2")


def test_an_extension_goes_on_where_the_rule_has_not_ended_the_run(ended, tiny_model, tmp_path):
    out = tmp_path / "run"
    train(tiny_model, out, 2, **STOPS)
    assert "stopped" not in best(out)
    succeed("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=6")
    expect_same(out, ended[0])
    one_line(evenkeel("train", CONFIG, "--out", out, "--resume", "--set", "train.rounds=1", "--from-round", 0), "evaluate.every is 1", "train.rounds 1")
    # the file alone has the rule, and not evaluate.every, with which the run began
    ruled = tmp_path / "ruled.toml"
    ruled.write_text(CONFIG.read_text().replace("[train]\n", "[train]\nstop = { patience = 2, min_delta = 100 }\n"))
    succeed("train", ruled, "--out", tmp_path / "file", *words(tiny_model, 3, train__optimizer__lr=0.1))
    succeed("train", ruled, "--out", tmp_path / "file", "--resume", "--set", "train.rounds=5")
    assert best(tmp_path / "file")["stopped"]["round"] == 3


def test_going_back_by_a_round(kept, tmp_path):
    """The best round before the last one is kept, until the run has passed the round again."""
    for back in (3, 0):
        out = tmp_path / str(back)
        shutil.copytree(kept, out)
        (out / "checkpoint/round-4/state.safetensors").write_bytes(b"damaged")
        succeed("train", CONFIG, "--out", out, "--resume", "--from-round", back)
        expect_same(out, kept)


# --- ranks and federations ---

@slow
def test_ranks_end_at_the_same_round(ended, tiny_model, tmp_path):
    started("train", CONFIG, "--out", tmp_path / "run", *words(tiny_model, 6, **STOPS), "--ranks", 2)
    expect_same(tmp_path / "run", ended[0])


def test_a_server_that_scores_nothing_refuses(tiny_model, tmp_path):
    for key in ({"train__stop__patience": 1}, {"evaluate__keep_best": "true"}):
        one_line(started("serve", CONFIG, "--listen", "127.0.0.1:0", "--insecure", "--open", "--no-evaluation", "--out", tmp_path / "run",
                         *words(tiny_model, **key)), "--no-evaluation", "builtin:facts")
        assert not (tmp_path / "run").exists()


# --- refused before any work ---

@pytest.mark.parametrize("changes, says", [
    ({"train__stop__patience": 2, "evaluate__every": 0}, ["train.stop.patience is 2", "evaluate.every is 0"]),
    ({"train__stop__patience": 2, "evaluate__every": 4}, ["train.stop.patience is 2", "evaluate.every is 4", "train.rounds 4"]),
    ({"evaluate__keep_best": "true", "evaluate__every": 9}, ["evaluate.keep_best is true", "evaluate.every is 9"]),
    ({"evaluate__keep_best": "true", "evaluate__best__measure": "f1"}, ["evaluate.best.measure", '"f1"', "builtin:facts"]),
    ({"evaluate__keep_best": "true", "evaluate__best__measure": "exact_match", "evaluate__best__tasks": "builtin:sizes"}, ["exact_match", "builtin:sizes"]),
    ({"evaluate__keep_best": "true", "evaluate__likelihood": "false"}, ["evaluate.best.measure", "log_likelihood", "evaluate.likelihood"]),
    ({"evaluate__keep_best": "true", "evaluate__best__tasks": "builtin:tools"}, ["evaluate.best.tasks", "builtin:tools", "builtin:facts, builtin:sizes"]),
    ({"evaluate__keep_best": "true", "evaluate__best__budget": 0.5}, ["evaluate.best.budget is 0.5", "0.25, 1"])])
def test_a_rule_without_scores_to_go_by_is_refused(tiny_model, tmp_path, changes, says):
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "run", *words(tiny_model, **changes)), *says)
    assert not (tmp_path / "run").exists()


def test_a_score_that_is_not_whole_does_not_count(kept, tmp_path):
    """Where the rows of a client are missing from a score, its round is not compared with others."""
    out = tmp_path / "run"
    shutil.copytree(kept, out)
    round_ = best(out)["round"]
    file = out / "evaluations.jsonl"
    changed = []
    for line in file.read_text().splitlines():
        one = json.loads(line)
        changed.append(sealed({**one, "missing_clients": [1]}) if one["round"] == round_ and one["budget"] == 1.0 else line)
    file.write_text("".join(line + "\n" for line in changed))
    succeed("train", CONFIG, "--out", out, "--resume")
    left = {one["round"]: one["value"] for one in best(out)["evaluated"]}
    assert round_ not in left and len(left) == 3
