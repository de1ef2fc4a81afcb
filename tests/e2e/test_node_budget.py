"""Tests that config.toml of a served run says what its nodes did, where a node has another budget than its config."""

import tomllib

from test_federation import DEADLINE, Processes, free_port, keygen, node_arguments, own_rows_config, wait_for
from tiny import lines, settings, succeed, tiny_model, without_seconds  # noqa: F401


def clients_of(text):
    return tomllib.loads(text)["clients"]


def test_a_nodes_budget_is_in_the_list_and_in_the_clients_section(tiny_model, tmp_path):  # noqa: F811
    config, keys, log, address = own_rows_config(tmp_path), keygen(tmp_path, 2), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    words = ["serve", config, "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure"]
    changes = settings(model__path=f'"{tiny_model}"', train__rounds=1, method__name='"hetlora"')

    def play(*more):
        with Processes() as processes:
            server = processes.start(*words, *more, log=log)
            for i, budget in enumerate((0.5, 0.5)):
                processes.start(*node_arguments(keys[i], tiny_model, address, "--data", tmp_path / f"rows/site-{i}.json", "--budget", budget),
                                log=tmp_path / f"site-{i}.log")
            assert wait_for(server, log) == 0, log.read_text()

    play(*changes)
    said = clients_of((tmp_path / "run/config.toml").read_text())
    assert said["budgets"] == [client["budget"] for client in said["client"]] == [0.5, 0.5]
    assert len(set(said["ranks"])) == 1
    play("--resume", "--set", "train.rounds=2")
    assert clients_of((tmp_path / "run/config.toml").read_text()) == said and len(lines(tmp_path / "run/rounds.jsonl")) == 2

    rows = "[{}]".format(", ".join(f"{{name='{client['name']}', data=['{tmp_path}/rows/{client['name']}.json'], budget={client['budget']}}}"
                                   for client in said["client"]))
    succeed("train", tmp_path / "run/config.toml", "--set", f"clients.client={rows}", *settings(model__path=f'"{tiny_model}"'), "--out",
            tmp_path / "local", timeout=DEADLINE)
    assert without_seconds(lines(tmp_path / "local/rounds.jsonl")) == without_seconds(lines(tmp_path / "run/rounds.jsonl"))
