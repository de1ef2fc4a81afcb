"""A federation with a method in Python: the server and each node name its file, and the run has the bits of a local one."""

import hashlib
import pathlib
import re
import sys

import pytest

from test_federation import Processes, free_port, keygen, node_arguments, run_settings, same_run, wait_for, wait_until
from tiny import ROOT, lines, started, tiny_model  # noqa: F401

METHOD = f"{ROOT / 'tests/python/methods/ub_smoe.py'}:UbSmoe"
SOURCE = pathlib.Path(METHOD.split(":")[0])
FEW = {"clients__count": 2, "clients__budgets": "[0.25, 1.0]"}


@pytest.fixture(autouse=True)
def python(monkeypatch):
    monkeypatch.setenv("EVENKEEL_PYTHON", sys.executable)


def both_digests(edited):
    """The line that refuses a node whose file differs from the server's."""
    server, own = (hashlib.sha256(file.read_bytes()).hexdigest() for file in (SOURCE, edited))
    return f"the server's source has sha256 {server}, this node's (edited.py:UbSmoe) {own}"


def test_a_served_run_has_the_bits_of_a_local_one_and_refuses_a_node_with_another_file(tiny_model, tmp_path):  # noqa: F811
    done = started("train", "configs/tiny/train.toml", *run_settings(tiny_model, "py-ub-smoe", **FEW), "--method", METHOD,
                   "--out", tmp_path / "local", "--quiet")
    assert done.returncode == 0, done.stderr
    keys, address, log = keygen(tmp_path, 3), f"127.0.0.1:{free_port()}", tmp_path / "serve.log"
    edited = tmp_path / "edited.py"
    edited.write_text(SOURCE.read_text() + "# another line\n")
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "py-ub-smoe", **FEW), "--method", METHOD,
                                 "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", log=log)
        refused = processes.start(*node_arguments(keys[2], tiny_model, address, "--method", f"{edited}:UbSmoe"), log=tmp_path / "edited.log")
        processes.start(*node_arguments(keys[0], tiny_model, address, "--method", METHOD), log=tmp_path / "site-0.log")
        assert wait_for(refused, tmp_path / "edited.log") == 1
        told = both_digests(edited)
        assert told in (tmp_path / "edited.log").read_text()
        wait_until(lambda: told in log.read_text(), log)
        processes.start(*node_arguments(keys[1], tiny_model, address, "--method", METHOD), log=tmp_path / "site-1.log")
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-0.log").read_text()
    same_run(tmp_path / "local", tmp_path / "run")
    assert "how many tokens chose each expert" in (tmp_path / "site-0.log").read_text()


def test_a_node_without_the_methods_file_does_not_join(tiny_model, tmp_path):  # noqa: F811
    (key, _), address, log = keygen(tmp_path, 2), f"127.0.0.1:{free_port()}", tmp_path / "node.log"
    with Processes() as processes:
        processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "py-ub-smoe", **FEW), "--method", METHOD,
                        "--out", tmp_path / "run", "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure",
                        log=tmp_path / "serve.log")
        node = processes.start(*node_arguments(key, tiny_model, address), log=log)
        assert wait_for(node, log) == 1
    assert "method.name is \"py-ub-smoe\"" in log.read_text() and "--method FILE.py:CLASS" in log.read_text()


def served(folder, model, source, name, **changes):
    """Serves a run of a method with this source to two nodes. Returns the logs of the server and of the nodes, and the records."""
    keys, address, log = keygen(folder, 2), f"127.0.0.1:{free_port()}", folder / "serve.log"
    (folder / "own.py").write_text(source)
    method = ["--method", f"{folder / 'own.py'}:{name}"]
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *run_settings(model, name.lower(), **FEW, **changes), *method,
                                 "--out", folder / "run", "--listen", address, "--allow", folder / "keys.txt", "--insecure", log=log)
        for i, key in enumerate(keys):
            processes.start(*node_arguments(key, model, address, *method), log=folder / f"site-{i}.log")
        assert wait_for(server, log) == 0, log.read_text()
    return log.read_text(), [(folder / f"site-{i}.log").read_text() for i in range(2)], lines(folder / "run/rounds.jsonl")


CHECKS = """import dataclasses

import evenkeel_moe as ek
import numpy as np


class Checks(ek.Method):
    base = "a3smoe"

    def check_upload(self, upload, client):
        super().check_upload(upload, client)
        name = next(name for name in upload.extras if name.endswith(".counts"))
        none = ek.Payload(upload.adapters, {**upload.extras, name: np.zeros_like(upload.extras[name])})
        for one, of in ((none, client), (upload, dataclasses.replace(client, top_k=client.top_k + 1))):
            try:
                super().check_upload(one, of)
                raise AssertionError("it was accepted")
            except ek.EvenkeelError as error:
                print("refused for client", client.id, "because", error)
"""


def test_the_base_methods_check_gets_the_upload_and_the_client_that_a_hook_gives(tiny_model, tmp_path):  # noqa: F811
    said, _, rounds = served(tmp_path, tiny_model, CHECKS, "Checks", train__rounds=1)
    refused = re.findall(r"refused for client (\d) because .* were chosen .* times by", said)
    assert sorted(refused) == ["0", "0", "1", "1"] and "lost" not in rounds[0], said


DIES = """import os

import evenkeel_moe as ek


class Dies(ek.Method):
    def edit_parameters(self, step):
        if os.path.exists({mark!r}):
            os.remove({mark!r})
            os.kill(os.getpid(), 9)
"""


def test_a_node_whose_python_process_was_killed_is_lost_for_one_round_alone(tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "mark").write_text("the first node that sees this file removes it and dies")
    _, said, rounds = served(tmp_path, tiny_model, DIES.format(mark=str(tmp_path / "mark")), "Dies", train__rounds=3, clients__deadline=20)
    assert sum("was killed by signal 9" in text for text in said) == 1, said
    assert [len(line.get("lost", [])) for line in rounds] == [1, 0, 0]


TOGETHER = """import evenkeel_moe as ek
import numpy as np


class Together(ek.Method):
    base = "ub-smoe"
    changes_base = True
    metrics = {"mine": (0, 10)}

    def edit_gradients(self, step):
        super().edit_gradients(step)
        step.add_metric("mine", 1.0)

    def upload(self, download, setup, counts, view):
        sent = super().upload(download, setup, counts, view)
        sent.extras["model.norms"] = np.array([np.linalg.norm(one.a) for one in setup.adapters.values()], "f4")
        sent.extras["model.known"] = np.array(float("number" in view.memory), "f4")
        if view.round == 0:
            view.memory["number"] = np.ones(1)
        else:
            view.memory.clear()
        return sent

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        if round.round == 0:
            new.base_delta = {site: ek.Factors(one.a.copy(), one.b * np.float32(one.scaling)) for site, one in new.adapters.items()}
            for one in new.adapters.values():
                one.b = np.zeros_like(one.b)
        new.memory["known"] = uploads.mean_extra("model.known")
        return new

    def diagnostics(self, state):
        return {**super().diagnostics(state), "known": state.memory["known"]}
"""


def test_nodes_take_a_change_of_the_base_more_metrics_extras_of_all_sites_and_a_cleared_memory(tiny_model, tmp_path):  # noqa: F811
    said, _, rounds = served(tmp_path, tiny_model, TOGETHER, "Together", train__rounds=3)
    assert all("lost" not in line for line in rounds), said
    assert [line["diagnostics"]["known"] for line in rounds] == [0, 1, 0]
    assert all(client["metrics"].keys() >= {"mine", "idle_share"} for line in rounds for client in line["clients"])
    assert ["base_delta" in line["bytes_down_parts"] for line in rounds] == [False, True, False]
    done = started("train", "configs/tiny/train.toml", *run_settings(tiny_model, "together", **FEW, train__rounds=3), "--method",
                   f"{tmp_path / 'own.py'}:Together", "--out", tmp_path / "local", "--quiet")
    assert done.returncode == 0, done.stderr
    same_run(tmp_path / "local", tmp_path / "run")


SOMETIMES = """import evenkeel_moe as ek
import numpy as np


class Sometimes(ek.Method):
    base = "fedit"
    changes_base = True

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        if round.round in (0, 3):
            new.base_delta = {site: ek.Factors(one.a.copy(), one.b * np.float32(one.scaling)) for site, one in new.adapters.items()}
            for one in new.adapters.values():
                one.b = np.zeros_like(one.b)
        return new
"""


@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_nodes_and_the_server_take_changes_of_the_base_after_rounds_without_one(participation, tiny_model, tmp_path):  # noqa: F811
    changes = {"train__rounds": 6, "clients__participation": participation, "evaluate__every": 0}
    said, _, rounds = served(tmp_path, tiny_model, SOMETIMES, "Sometimes", **changes)
    assert len(rounds) == 6 and all("lost" not in line for line in rounds), said
    done = started("train", "configs/tiny/train.toml", *run_settings(tiny_model, "sometimes", **FEW, **changes), "--method",
                   f"{tmp_path / 'own.py'}:Sometimes", "--out", tmp_path / "local", "--quiet")
    assert done.returncode == 0, done.stderr
    same_run(tmp_path / "local", tmp_path / "run")
