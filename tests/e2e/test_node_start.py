"""Checks that a node validates its arguments and files before it connects.

No server listens at the address of these tests, so a node that connected would wait.
"""

import json
import os
import shutil

import pytest

from hostile import refused
from test_federation import (CLIENTS, DEADLINE, Processes, free_port, keygen, local_run, node_arguments, own_rows_config, run_settings, same_run,
                             wait_for)
from tiny import lines, settings, succeed, tiny_model, without_seconds  # noqa: F401

NOBODY = "127.0.0.1:9"
ROW = {"instruction": "What colour is it?", "output": "red"}


@pytest.fixture
def place(tmp_path):
    """Returns a folder with a key, rows, and files and folders that are not rows."""
    keygen(tmp_path, 1)
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "own.toml").write_text("threads = 1\n")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def node(place, model, *more):
    return ["node", "--superlink", NOBODY, "--insecure", "--key", place / "site-0.pem", "--model", model, *more]


@pytest.mark.parametrize("more, says", [
    (["--data", "{place}/missing.jsonl"], ["--data", "missing.jsonl", "not there"]),
    (["--data", "{place}/none-*.jsonl"], ["--data", "none-*.jsonl", "matches no file"]),
    (["--data", "{place}/empty"], ["--data", "empty folder"]),
    (["--data", "{place}/pipe"], ["--data", "pipe is a pipe or a device"]),
    (["--data", "{place}/rows.jsonl", "{place}/missing.jsonl"], ["--data", "missing.jsonl"]),
    (["--test", "{place}/missing.jsonl"], ["--test", "missing.jsonl"]),
    (["--test", "{place}/empty"], ["--test", "empty folder"]),
    (["--adapters", "{place}/rows.jsonl"], ["--adapters", "rows.jsonl", "not a folder"]),
    (["--adapters", "{place}/rows.jsonl/below"], ["--adapters", "rows.jsonl", "not a folder"]),
    (["--memory", "{place}/rows.jsonl"], ["--memory", "not a folder"]),
    (["--memory", "{place}/own.toml/a/b"], ["--memory", "own.toml", "not a folder"]),
    (["--agreed", "{place}/missing.toml"], ["missing.toml"]),
    (["--agreed", "{place}/empty"], ["empty"]),
    (["--device", "cuda:99"], ["--device"]),
    (["--budget", "many"], ["--budget"]),
    (["--budget", "auto", "--round-seconds", "0"], ["--round-seconds is 0", "above 0"]),
    (["--budget", "auto", "--round-seconds", "-5"], ["--round-seconds is -5"]),
    (["--budget", "auto", "--round-seconds", "nan"], ["--round-seconds is nan"]),
    (["--budget", "0.5", "--round-seconds", "5"], ["--round-seconds", "--budget auto"]),
    (["--poll", "0"], ["--poll is 0", "0.01 to 3600"]),
    (["--poll", "3601"], ["--poll is 3601"]),
    (["--poll", "nan"], ["--poll is nan"]),
    (["--min-test-rows", "0"], ["--min-test-rows", "is 0", "1 or more"]),
    (["--min-test-rows", "few"], ["--min-test-rows"]),
    (["--min-train-rows", "0"], ["--min-train-rows", "is 0", "1 or more"]),
    (["--min-train-rows", "few"], ["--min-train-rows"]),
    (["--most-steps", "0"], ["--most-steps", "is 0", "1 or more"]),
    (["--most-steps", "1e99"], ["--most-steps"]),
])
def test_an_invalid_argument_of_the_node_is_rejected_before_it_connects(more, says, place, tiny_model):  # noqa: F811
    refused(*node(place, tiny_model, *(word.format(place=place) for word in more)), says=says, untouched=place)


@pytest.mark.parametrize("change, says", [
    (lambda model: shutil.rmtree(model), ["--model", "is not a folder"]),
    (lambda model: (model / "config.json").unlink(), ["--model", "config.json"]),
    (lambda model: (model / "config.json").write_text("{"), ["--model", "config.json", "not valid JSON"]),
    (lambda model: (model / "model.safetensors").unlink(), ["--model", "safetensors"]),
    (lambda model: (model / "tokenizer.json").unlink(), ["--model", "tokenizer.json"]),
])
def test_an_invalid_model_folder_is_rejected(change, says, place, model):
    change(model)
    refused(*node(place, model), says=says, untouched=place)


def test_an_invalid_agreed_config_is_rejected(place, tiny_model):  # noqa: F811
    for text, says in (("rounds = 1\n", ["agreed.toml", "rounds"]), ("[data]\ntemplate = 'chat'\nchat_template = '/nowhere.jinja'\n", ["/nowhere.jinja"])):
        (place / "agreed.toml").write_text(text)
        refused(*node(place, tiny_model, "--agreed", place / "agreed.toml"), says=says, untouched=place)


def test_invalid_keys_and_certificates_are_rejected(place, tiny_model):  # noqa: F811
    words = ["node", "--superlink", NOBODY, "--model", tiny_model]
    refused(*words, "--insecure", "--key", place / "missing.pem", says=["missing.pem", "No such file or directory"], untouched=place)
    (place / "rows.jsonl").chmod(0o600)
    refused(*words, "--insecure", "--key", place / "rows.jsonl", says=["rows.jsonl", "private key"], untouched=place)
    refused(*words, "--insecure", "--key", place / "empty", says=["empty"], untouched=place)
    refused(*words, "--key", place / "site-0.pem", "--ca", place / "missing-ca.pem", says=["missing-ca.pem"], untouched=place)
    (place / "site-0.pem.memory").write_text("no folder")
    refused(*words, "--insecure", "--key", place / "site-0.pem", says=["--memory", "site-0.pem.memory", "not a folder"], untouched=place)


@pytest.mark.parametrize("more, says", [
    (["--superlink", "server:8000"], ["--superlink"]), (["--ca", "ca.pem"], ["--ca"]), (["--insecure"], ["--insecure"]),
    (["--once"], ["--once"]), (["--poll", "3"], ["--poll"]),
])
def test_flags_of_a_connection_are_rejected_beside_a_socket(more, says, place, tiny_model):  # noqa: F811
    refused("node", "--socket", place / "s.sock", "--model", tiny_model, *more, says=["--socket is ", "remove: ", *says], untouched=place)


def test_a_home_folder_is_found_in_the_paths_of_peers_and_methods(place, tiny_model, monkeypatch):  # noqa: F811
    monkeypatch.setenv("HOME", str(place))
    refused(*node(place, tiny_model, "--peers", "~/none.txt"), says=[f"{place}/none.txt"], untouched=place)
    refused(*node(place, tiny_model, "--method", "~/none.py:None"), says=[f"--method: {place}/none.py is no file"], untouched=place)


# --- folders of rows ---

def test_a_data_folder_means_all_row_files_in_it(tiny_model, tmp_path):  # noqa: F811
    """Tests a folder of .jsonl files, and one of .jsonl and .json files. Both also have a file that is not rows."""
    config = own_rows_config(tmp_path)
    rows = json.loads((tmp_path / "rows/site-0.json").read_text())
    for name in ("lines", "both"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").write_text("no rows")
    (tmp_path / "lines/a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copy(tmp_path / "rows/site-1.json", tmp_path / "both/z.json")
    (tmp_path / "both/y.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    own = f"""[{{name='site-0', data=['{tmp_path}/lines/a.jsonl'], budget=0.25}},
              {{name='site-1', data=['{tmp_path}/both/y.jsonl', '{tmp_path}/both/z.json'], budget=1.0}}]""".replace("\n", " ")
    changes = settings(model__path=f'"{tiny_model}"', train__rounds=1, clients__client=own)
    succeed("train", config, *changes, "--out", tmp_path / "local", timeout=DEADLINE)
    keys, log, address = keygen(tmp_path, 2), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    with Processes() as processes:
        server = processes.start("serve", config, *changes, "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt",
                                 "--insecure", log=log)
        for key, folder in zip(keys, ("lines", "both")):
            processes.start(*node_arguments(key, tiny_model, address, "--data", tmp_path / folder), log=tmp_path / f"{folder}.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "lines.log").read_text()
    adapter = "adapter/adapter_model.safetensors"
    assert (tmp_path / "run" / adapter).read_bytes() == (tmp_path / "local" / adapter).read_bytes()
    assert without_seconds(lines(tmp_path / "run/rounds.jsonl")) == without_seconds(lines(tmp_path / "local/rounds.jsonl"))


def test_a_data_folder_of_a_built_in_task_need_not_have_test_files(tiny_model, tmp_path):  # noqa: F811
    """Only the server's folder has the test files. The nodes have the training rows in another folder."""
    row = {"instruction": "Is {} even? Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
    rows = [{**row, "instruction": row["instruction"].format(2 * i)} for i in range(16)]
    for folder in ("server", "node"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "commonsense_11k_rebuilt.json").write_text(json.dumps(rows))
    (tmp_path / "server/boolq").mkdir()
    (tmp_path / "server/boolq/test.json").write_text(json.dumps(rows[:2]))
    changes = {"data__task": "commonsense", "data__path": tmp_path / "server", "data__limit": 0, "data__partition__kind": "iid",
               "evaluate__tasks": "['boolq']", "evaluate__budgets": "[1.0]", "train__rounds": 1}
    local = local_run(tmp_path, tiny_model, "fedit", **changes)
    keys, log, address = keygen(tmp_path), tmp_path / "serve.log", f"127.0.0.1:{free_port()}"
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit", **changes), "--out", tmp_path / "run",
                                 "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", log=log)
        for i in range(CLIENTS):
            processes.start(*node_arguments(keys[i], tiny_model, address, "--data", tmp_path / "node"), log=tmp_path / f"site-{i}.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-0.log").read_text()
    same_run(local, tmp_path / "run")
    assert str(tmp_path / "server") not in (tmp_path / "site-0.log").read_text()
