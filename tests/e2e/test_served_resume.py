"""Tests that a served run resumes like `evenkeel train`: to another number of rounds, or from an earlier round. The
server checks its inputs before nodes can join.
"""

import json

import pytest

from test_federation import CLIENTS, Processes, federation, free_port, keygen, local_run, node_arguments, run_settings, same_run, wait_for, wait_until
from test_served_nodes import TEMPLATE, config_of, served
from tiny import evenkeel, lines, one_line, settings, slow, succeed, tiny_model, without_seconds  # noqa: F401

QUICK = {"data__limit": 30, "evaluate__limit": 1, "evaluate__budgets": "[1.0]"}


def go_on(processes, tmp_path, serve, model, *more):
    """Runs the server again, with restarted nodes."""
    serve = [word for i, word in enumerate(serve) if not str(word).startswith("train.rounds=") and
             not (word == "--set" and str(serve[i + 1]).startswith("train.rounds="))]
    address = f"127.0.0.1:{free_port()}"
    serve[serve.index("--listen") + 1] = address
    log = tmp_path / "again.log"
    server = processes.start(*serve, "--resume", *more, log=log)
    for i in range(CLIENTS):
        processes.start(*node_arguments(tmp_path / f"site-{i}.pem", model, address), log=tmp_path / f"site-{i}.log")
    assert wait_for(server, log) == 0, log.read_text()


@pytest.mark.parametrize("method", ["ub-smoe", pytest.param("flora", marks=slow)])
def test_an_extended_served_run_equals_a_run_with_all_rounds(method, tiny_model, tmp_path):  # noqa: F811
    local = local_run(tmp_path, tiny_model, method, **QUICK | {"train__rounds": 3})
    with Processes() as processes:
        server, _, run, serve = federation(processes, tmp_path, tiny_model, method, **QUICK | {"train__rounds": 1})
        log = tmp_path / "serve.log"
        assert wait_for(server, log) == 0, log.read_text()
        before = (run / "evaluations.jsonl").read_text()
        go_on(processes, tmp_path, serve, tiny_model, "--set", "train.rounds=3")
    same_run(local, run)
    assert (run / "superseded.jsonl").read_text() == before
    change, = json.loads((run / "manifest.json").read_text())["changes"]
    assert change["train.rounds"] == 3 and change["after_round"] == 1
    (taken,) = (tmp_path / "site-0.pem.adapters").iterdir()
    assert (taken / "adapter_model.safetensors").read_bytes() == (local / "adapter/adapter_model.safetensors").read_bytes()


def test_a_served_run_ends_early_and_keeps_its_best_round_as_a_local_one(tiny_model, tmp_path):  # noqa: F811
    rule = QUICK | {"train__rounds": 4, "evaluate__every": 1, "train__stop__patience": 1, "train__stop__min_delta": 100, "evaluate__keep_best": "true"}
    local = local_run(tmp_path, tiny_model, "fedit", **rule)
    with Processes() as processes:
        server, _, run, serve = federation(processes, tmp_path, tiny_model, "fedit", **rule)
        log = tmp_path / "serve.log"
        assert wait_for(server, log) == 0, log.read_text()
        same_run(local, run)
        assert len(lines(run / "rounds.jsonl")) == 2 and "the run ends after round 2 of 4" in log.read_text()
        go_on(processes, tmp_path, serve, tiny_model)  # it has ended, and nodes that come again are told so
    same_run(local, run)
    for name in ("best.json", "best/adapter_model.safetensors", "best/adapter_config.json"):
        assert (run / name).read_bytes() == (local / name).read_bytes(), name


@pytest.mark.parametrize("round", [0, pytest.param(1, marks=slow)])
def test_a_run_resumes_from_an_earlier_round_to_the_same_bits(round, tiny_model, tmp_path):  # noqa: F811
    """smoe-llb's clients store state from round to round, on the nodes' disks."""
    local = local_run(tmp_path, tiny_model, "smoe-llb", **QUICK)
    with Processes() as processes:
        server, _, run, serve = federation(processes, tmp_path, tiny_model, "smoe-llb", **QUICK)
        log = tmp_path / "serve.log"
        assert wait_for(server, log) == 0, log.read_text()
        (run / "checkpoint/round-2/state.safetensors").write_bytes(b"damaged")
        done = evenkeel(*serve, "--resume")
        one_line(done, "round 1 is whole", "serve", "--from-round 1", "with the flags of its network")
        go_on(processes, tmp_path, serve, tiny_model, "--from-round", round)
    same_run(local, run)


def test_settings_that_a_served_run_cannot_change_are_rejected_on_resume(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        server, _, run, serve = federation(processes, tmp_path, tiny_model, "fedit",
                                           **QUICK | {"train__rounds": 1, "train__schedule__kind": "linear"})
        assert wait_for(server, tmp_path / "serve.log") == 0, (tmp_path / "serve.log").read_text()
    one_line(evenkeel(*serve, "--resume", "--set", "train.rounds=2"), "train.schedule.kind", "linear", "train.rounds is 2, in the run 1")
    one_line(evenkeel(*serve, "--resume", "--set", "seed=7"), "seed is 7", "a resumed run may change train.rounds by --set")
    one_line(evenkeel(*serve, "--resume", "--from-round", 7), "--from-round is 7", "allowed", "0")
    one_line(evenkeel(*serve, "--from-round", 0), "--resume")


def refused_before_the_port_opens(serve, run, *says):
    done = evenkeel(*serve, timeout=600)
    one_line(done, *says)
    assert "listening" not in done.stderr and not run.exists()


def serve_words(tmp_path, config, *more):
    keygen(tmp_path, 2)
    return ["serve", config, *more, "--out", tmp_path / "run", "--listen", "127.0.0.1:0", "--allow", tmp_path / "keys.txt", "--insecure"]


GOOD = {"prompt": "Name a metal.", "completion": "tin"}


@pytest.mark.parametrize("rows, says", [
    ([GOOD, {"prompt": "Name a tree."}], ["test.jsonl:2", "completion is missing"]),
    ([GOOD, {"prompt": "Name a tree. " * 2000, "completion": "oak"}], ["test.jsonl:2", "positions"]),
    ([{"prompt": " ", "completion": "oak"}], ["test.jsonl"]),
])
def test_rows_that_the_server_scores_are_checked_first(rows, says, tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = settings(model__path=tiny_model, method__name="fedit", evaluate__tasks="['files']", data__files__test=f"['{tmp_path}/test.jsonl']",
                     clients__count=2, clients__budgets="[0.5, 1.0]", clients__participation="1.0")
    refused_before_the_port_opens(serve_words(tmp_path, "configs/tiny/train.toml", *words), tmp_path / "run", *says)


@pytest.mark.parametrize("change, says", [
    ({"evaluate__bert_score__encoder": "'/nowhere'"}, ["/nowhere"]),
    ({"lora__init": "'/nowhere'"}, ["lora.init", "/nowhere"]),
    ({"method__name": "fed-sb"}, ["fed-sb", "init", "federated"]),
    ({"data__chat_template": "'/nowhere.jinja'", "data__template": "chat"}, ["/nowhere.jinja"]),
    ({"evaluate__budgets": "[0.01]"}, ["evaluate.budgets"]),
])
def test_other_inputs_of_the_server_are_checked_first(change, says, tiny_model, tmp_path):  # noqa: F811
    words = run_settings(tiny_model, **{"method": "fedit", "clients__count": 2, "clients__budgets": "[0.5, 1.0]"} | change)
    refused_before_the_port_opens(serve_words(tmp_path, "configs/tiny/train.toml", *words), tmp_path / "run", *says)


def by_point(run):
    """Returns the numbers of each complete score by (task, budget, client, rows_of). Checks that each key occurs once."""
    scores = [one for one in without_seconds(lines(run / "evaluations.jsonl")) if not one.get("missing_clients")]
    points = {(one["task"], one["budget"], one.get("client"), one.get("rows_of")):
              {key: value for key, value in one.items() if isinstance(value, (int, float))} for one in scores}
    assert len(points) == len(scores)
    return points


@pytest.mark.parametrize("lost", ["one", "all", "killed"])
def test_a_resumed_run_asks_again_for_scores_that_were_lost(lost, tiny_model, tmp_path):  # noqa: F811
    """Scores are lost because test files change after the nodes joined. The files are restored before the resume.

    In the case `killed` the server is also killed while a score is missing.
    """
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path}/own.jinja"')
    config.write_text(config.read_text().replace('score = "exact"', 'score = "nll"'))
    succeed("train", config, "--out", tmp_path / "local")
    run, lacking = tmp_path / "run", [1] if lost != "all" else [0, 1]
    tests = [tmp_path / f"site-{i}-test.jsonl" for i in range(2)]
    before = [file.read_text() for file in tests]
    with Processes() as processes:
        server, log = served(processes, tmp_path, config, lambda i: tiny_model)
        wait_until(lambda: log.read_text().count(" is client ") == 2 or server.poll() is not None, log)
        for i in lacking:
            tests[i].write_text(before[i].splitlines()[0] + "\n")
        if lost == "killed":
            wait_until(lambda: lines(run / "missing_scores.jsonl") or server.poll() is not None, log)
            server.kill()
            server.wait()
        else:
            assert wait_for(server, log) == 0, log.read_text()
    assert {one["client"] for one in lines(run / "missing_scores.jsonl")} == set(lacking)
    known = by_point(run)
    assert len(known) < len(by_point(tmp_path / "local"))
    for file, text in zip(tests, before):
        file.write_text(text)
    missing = (run / "missing_scores.jsonl").read_text()
    with Processes() as processes:
        server, log = served(processes, tmp_path, config, lambda i: tiny_model, "--resume", make_keys=False)
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-1.log").read_text()
    assert (run / "missing_scores.jsonl").read_text() == missing, "the file must still list the scores that were missing once"
    found, expected = by_point(run), by_point(tmp_path / "local")
    assert found.keys() == expected.keys()
    for point, score in expected.items():
        assert score["nll"] > 1 and found[point] == pytest.approx(score, rel=1e-9), point
    assert {point: found[point] for point in known} == known, "scores that were complete must not be computed again"
    tables = [succeed("report", folder, "--table", "client-scores").stdout.replace(folder.name, "RUN") for folder in (run, tmp_path / "local")]
    assert tables[0] == tables[1]
