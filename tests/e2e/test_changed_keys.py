"""Tests which keys of the config a resumed run may change, what that changes, and what is recorded of it."""

import json
import tomllib

import pytest

from test_federation import Processes, keygen, wait_for, wait_until
from test_operator import Federation
from tiny import CONFIG, evenkeel, lines, one_line, settings, slow, succeed, tiny_model  # noqa: F401

SMALL = {"train__rounds": 2, "evaluate__limit": 1, "data__limit": 30, "evaluate__budgets": "[1.0]", "method__name": "fedit", "threads": 1}


def train(run, model, *more, **changes):
    return ["train", CONFIG, "--out", run, *settings(model__path=model, **SMALL | changes), *more]


def resume(run, *more):
    return ["train", CONFIG, "--out", run, "--resume", *more]


def audited(run, kind):
    """Returns what the audit log says of the events of a kind."""
    return [event["outcome"] for event in lines(run / "federation/audit.jsonl") if event["kind"] == kind]


def changes_of(run):
    return json.loads((run / "manifest.json").read_text()).get("changes", [])


def config_in(run):
    return tomllib.loads((run / "config.toml").read_text())


def scored(run):
    return sorted((one["round"], one["budget"]) for one in lines(run / "evaluations.jsonl"))


@pytest.fixture(scope="module")
def finished(tiny_model, tmp_path_factory):  # noqa: F811
    """Returns a finished run of one round that no test changes."""
    run = tmp_path_factory.mktemp("finished") / "run"
    succeed(*train(run, tiny_model, train__rounds=1))
    return run


def test_evaluation_may_change_from_the_next_round_on(tiny_model, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    succeed(*train(run, tiny_model))
    before = scored(run)
    succeed(*resume(run, "--set", "train.rounds=4", "--set", "evaluate.every=1", "--set", "evaluate.budgets=[0.5, 1.0]"))
    tasks = len(before)
    assert sorted(set(scored(run))) == [(round, budget) for round in (2, 3, 4) for budget in (0.5, 1.0)] and len(scored(run)) == 6 * tasks
    (change,) = changes_of(run)
    assert change["after_round"] == 2 and change["train.rounds"] == 4
    assert change["keys"] == {"evaluate.budgets": {"from": "[1.0]", "to": "[0.5, 1.0]"}, "evaluate.every": {"from": "0", "to": "1"}}
    assert config_in(run)["evaluate"]["every"] == 1 and config_in(run)["evaluate"]["budgets"] == [0.5, 1.0]
    succeed("report", run)
    # The run keeps the new values, and they need not be repeated.
    succeed(*resume(run))
    assert changes_of(run) == [change] and config_in(run)["evaluate"]["every"] == 1
    # Extended again, it keeps the scores of the rounds that were due.
    succeed(*resume(run, "--set", "train.rounds=5", "--set", "evaluate.every=0"))
    assert sorted({round for round, _ in scored(run)}) == [2, 3, 4, 5]
    assert [change["after_round"] for change in changes_of(run)] == [2, 4]


def test_the_adapter_does_not_depend_on_what_is_evaluated(tiny_model, tmp_path):  # noqa: F811
    """A run that begins with the last values has the same rounds."""
    succeed(*train(tmp_path / "changed", tiny_model, train__rounds=1))
    succeed(*resume(tmp_path / "changed", "--set", "train.rounds=2", "--set", "evaluate.every=1"))
    succeed(*train(tmp_path / "whole", tiny_model, evaluate__every=1))
    adapters = [(tmp_path / name / "adapter/adapter_model.safetensors").read_bytes() for name in ("changed", "whole")]
    assert adapters[0] == adapters[1]
    assert scored(tmp_path / "changed") == scored(tmp_path / "whole")


def test_a_value_may_also_change_in_the_config_file_and_back(tiny_model, tmp_path):  # noqa: F811
    run, file = tmp_path / "run", tmp_path / "run.toml"
    words = settings(model__path=tiny_model, **{key: value for key, value in SMALL.items() if key != "evaluate__budgets"})
    text = CONFIG.read_text()
    assert "deadline" not in text and "[clients]" in text
    file.write_text(text)
    succeed("train", file, "--out", run, *words, *settings(evaluate__budgets="[1.0]"))
    for deadline in ("2.5", "0"):
        file.write_text(text.replace("[clients]", f"[clients]\ndeadline = {deadline}"))
        succeed("train", file, "--out", run, "--resume")
        assert config_in(run)["clients"]["deadline"] == float(deadline)
    assert [list(change["keys"]) for change in changes_of(run)] == [["clients.deadline"]] * 2
    assert changes_of(run)[1]["keys"]["clients.deadline"] == {"from": "2.5", "to": "0.0"}


@pytest.mark.parametrize("setting, says", [
    ("train.optimizer.lr=0.5", "train.optimizer.lr is 0.5, in the run "),
    ("seed=9", "seed is 9, in the run "),
    ("evaluate.max_new_tokens=7", "evaluate.max_new_tokens is 7, in the run "),
    ("clients.participation=0.5", "clients.participation is 0.5, in the run "),
    ("evaluate.limit=2", "evaluate.limit is 2, in the run 1"),
])
def test_what_would_make_records_untrue_is_refused_with_both_values(setting, says, finished):
    before = (finished / "manifest.json").read_bytes()
    one_line(evenkeel(*resume(finished, "--set", setting, "--set", "evaluate.every=1")), says, "a resumed run may change")
    assert (finished / "manifest.json").read_bytes() == before


def test_an_impossible_value_is_refused_as_at_the_beginning(finished):
    before = (finished / "manifest.json").read_bytes()
    one_line(evenkeel(*resume(finished, "--set", "clients.quorum=1000")), "clients.quorum", "1000", "allowed")
    one_line(evenkeel(*resume(finished, "--set", "evaluate.budgets=[2.0]")), "evaluate.budgets")
    assert (finished / "manifest.json").read_bytes() == before


def test_scores_that_are_compared_keep_their_budgets_and_rounds(tiny_model, tmp_path):  # noqa: F811
    run = tmp_path / "run"
    succeed(*train(run, tiny_model, evaluate__every=1, evaluate__keep_best="true"))
    one_line(evenkeel(*resume(run, "--set", "evaluate.budgets=[0.5, 1.0]")), "evaluate.budgets is [0.5, 1.0], in the run [1.0]", "keep_best")
    succeed(*resume(run, "--set", "clients.quorum=2"))


@slow
def test_ranks_go_on_with_changed_keys(tiny_model, tmp_path):  # noqa: F811
    runs = [tmp_path / "ranks", tmp_path / "alone"]
    for run, more in zip(runs, (["--ranks", 2], [])):
        succeed(*train(run, tiny_model, *more, train__rounds=1))
        succeed(*resume(run, *more, "--set", "train.rounds=2", "--set", "evaluate.every=1", "--set", "clients.quorum=2"))
        assert set(changes_of(run)[0]["keys"]) == {"evaluate.every", "clients.quorum"}
    assert scored(runs[0]) == scored(runs[1])
    adapters = [(run / "adapter/adapter_model.safetensors").read_bytes() for run in runs]
    assert adapters[0] == adapters[1]


def play(fed):
    """Plays the run with both nodes, which end with it."""
    server = fed.serve()
    nodes = [fed.node(i) for i in range(2)]
    assert wait_for(server, fed.log) == 0, fed.log.read_text()
    assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [0, 0]


def test_a_bound_of_the_server_holds_from_the_next_round_on(tiny_model, tmp_path):  # noqa: F811
    """In the second round client 0 moves by 0.071, client 1 by 0.040."""
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=1)
        play(fed)
        server = fed.serve("--resume", "--set", "train.rounds=2", "--set", "clients.update_norm=0.055", "--set", "clients.deadline=60")
        nodes = [fed.node(i) for i in range(2)]
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
    rounds = lines(fed.run / "rounds.jsonl")
    assert not rounds[0].get("lost") and [one["id"] for one in rounds[1]["lost"]] == [0]
    (change,) = changes_of(fed.run)
    assert set(change["keys"]) == {"clients.deadline", "clients.update_norm"} and change["after_round"] == 1
    assert audited(fed.run, "changed") == ["train.rounds is 2", "clients.deadline is 60.0, it was 0.0", "clients.update_norm is 0.055, it was 0.0"]
    one_line(evenkeel(*fed.words, "--resume", "--set", "data.cutoff=77"), "data.cutoff is 77, in the run ")


def test_rounds_close_without_a_node_that_is_gone_after_a_deadline_was_set(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=1)
        play(fed)
        server = fed.serve("--resume", "--set", "train.rounds=2", "--set", "clients.deadline=2")
        node = fed.node(0)
        assert wait_for(server, fed.log, 120) == 0, fed.log.read_text()
        assert wait_for(node, fed.node_log(0)) == 0
    rounds = lines(fed.run / "rounds.jsonl")
    assert [(one["id"], one["reason"]) for one in rounds[1]["lost"]] == [(1, "client 1: no reply within 2 s")]
    assert [one["client"] for one in lines(fed.run / "missing_scores.jsonl") if one["round"] == 2] == [1]


def test_admitted_keys_are_recorded_with_their_round(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=1)
        server = fed.serve()
        for i in range(2):
            fed.node(i)
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
    known = [line for line in (tmp_path / "keys.txt").read_text().splitlines()]
    other = tmp_path / "other"
    other.mkdir()
    keygen(other, 1)
    (tmp_path / "keys.txt").write_text("\n".join([known[0], (other / "keys.txt").read_text().replace("site-0", "late")]))
    with Processes() as processes:
        fed.processes = processes
        fed.serve("--resume")
        wait_until(lambda: changes_of(fed.run), fed.log)
    (change,) = changes_of(fed.run)
    assert change["after_round"] == 1
    assert [entry.split()[0][:7] for entry in change["allow"]["added"] + change["allow"]["removed"]] == ["SHA256:"] * 2
    for kind, entries in (("admitted", change["allow"]["added"]), ("revoked", change["allow"]["removed"])):
        assert [(event["key"] + " " + event["name"], event["round"]) for event in lines(fed.run / "federation/audit.jsonl")
                if event["kind"] == kind] == [(entry, 1) for entry in entries]
    assert change["allow"]["removed"][0].endswith(" harbour")
