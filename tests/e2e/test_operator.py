"""Tests what an operator of a federation can rely on: a server that is stopped while it waits, nodes that outlive it,
frozen nodes, damage on a connection without TLS, leftovers of killed processes, and a node that leaves.
"""

import contextlib
import json
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from test_federation import Processes, free_port, node_arguments, wait_for, wait_until
from tiny import evenkeel, lines, nightly, one_line, slow, succeed, tiny_model  # noqa: F401

NAMES = ["north", "harbour"]


def config_of(folder, model, **changes):
    """Writes a config of two clients with rows of their own. Each has test rows."""
    values = {"rounds": 2, "deadline": 0, "every": 0, "budgets": "[1.0]", "per_client": "false", **changes}
    for i, name in enumerate(NAMES):
        for kind, count in (("", 8 - 2 * i), ("-test", 3 + i)):
            rows = [{"prompt": f"Is {kind} {50 * i + n} odd?", "completion": "yes" if n % 2 else "no"} for n in range(count)]
            (folder / f"{name}{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    clients = "".join(f'[[clients.client]]\nname = "{name}"\ndata = ["{folder}/{name}.jsonl"]\ntest = ["{folder}/{name}-test.jsonl"]\n'
                      f"budget = {0.5 + i / 2}\n" for i, name in enumerate(NAMES))
    (folder / "run.toml").write_text(f"""name = "served"
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[data]
task = "files"
[data.files]
score = "exact"
[method]
name = "fedit"
[clients]
deadline = {values["deadline"]}
[train]
rounds = {values["rounds"]}
batch_size = 2
accumulation = 1
[evaluate]
budgets = {values["budgets"]}
every = {values["every"]}
per_client = {values["per_client"]}
max_new_tokens = 3
""" + clients)
    return folder / "run.toml"


class Federation:
    """A server and its nodes, in one folder."""

    def __init__(self, processes, folder, model, **changes):
        self.processes, self.folder, self.model = processes, folder, model
        self.config, self.run, self.log = config_of(folder, model, **changes), folder / "run", folder / "serve.log"
        self.keys = [folder / f"{name}.pem" for name in NAMES]
        (folder / "keys.txt").write_text("".join(succeed("keygen", key).stdout for key in self.keys))
        self.address = f"127.0.0.1:{free_port()}"
        self.words = ["serve", self.config, "--out", self.run, "--listen", self.address, "--allow", folder / "keys.txt", "--insecure"]

    def serve(self, *more):
        """Starts the server and waits until it listens."""
        before = self.said("listening at")
        server = self.processes.start(*self.words, *more, log=self.log)
        wait_until(lambda: self.said("listening at") > before or server.poll() is not None, self.log)
        return server

    def node(self, i, *more, address=None, once=True):
        rows = ["--data", self.folder / f"{NAMES[i]}.jsonl", "--test", self.folder / f"{NAMES[i]}-test.jsonl"]
        words = node_arguments(self.keys[i], self.model, address or self.address, *rows, *more)
        return self.processes.start(*(word for word in words if once or word != "--once"), log=self.node_log(i))

    def node_log(self, i):
        return self.folder / f"{NAMES[i]}.log"

    def said(self, text):
        return self.log.read_text().count(text) if self.log.exists() else 0

    def wait_until_said(self, text, count=1):
        wait_until(lambda: self.said(text) >= count, self.log)

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            return float(re.search(rf"^{name} (\S+)$", answer.read().decode(), re.M)[1])


def adapter_of(run):
    return (run / "adapter/adapter_model.safetensors").read_bytes()


# --- a server that ends before the first round ---

@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_a_server_that_ends_while_it_waits_goes_on_with_the_clients_that_had_joined(how, tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model)
        server = fed.serve()
        first = fed.node(0)
        fed.wait_until_said("is client 0")
        server.send_signal(how)
        code = wait_for(server, fed.log)
        if how == signal.SIGTERM:
            assert code == 130 and "the state is saved; resume with: " in fed.log.read_text() and "--resume" in fed.log.read_text()
        assert "waiting for clients" in succeed("status", fed.run).stdout
        members = json.loads((fed.run / "federation/members.json").read_text())
        one_line(evenkeel(*fed.words), "has waited here for its clients", "--resume", "another --out")
        assert json.loads((fed.run / "federation/members.json").read_text()) == members
        server = fed.serve("--resume")
        second = fed.node(1)
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate((first, second))] == [0, 0]
    assert fed.said("is client 0") == 1 and fed.said("is client 1") == 1
    assert json.loads((fed.run / "federation/members.json").read_text())["run"] == members["run"]
    succeed("train", fed.config, "--out", tmp_path / "local")
    assert adapter_of(fed.run) == adapter_of(tmp_path / "local")


def test_clients_are_asked_again_when_the_config_changes_before_the_first_round(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model)
        server = fed.serve()
        nodes = [fed.node(0)]
        fed.wait_until_said("is client 0")
        server.kill()
        server.wait()
        server = fed.serve("--resume", "--set", "train.rounds=1")
        nodes.append(fed.node(1))
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [0, 0]
    assert fed.said("1 clients had joined with another config or model") == 1 and fed.said("is client 0") == 2
    assert len(lines(fed.run / "rounds.jsonl")) == 1


def test_a_client_whose_key_may_not_join_any_more_is_not_taken_over(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model)
        server = fed.serve()
        node = fed.node(0)
        fed.wait_until_said("is client 0")
        server.kill()
        server.wait()
        line = (tmp_path / "keys.txt").read_text().splitlines()[1]
        (tmp_path / "keys.txt").write_text(line + "\n")
        fed.serve("--resume")
        fed.wait_until_said("is client 0 no more: its key was removed from the list of keys")
        assert wait_for(node, fed.node_log(0)) == 1
    assert "does not accept this node" in fed.node_log(0).read_text()
    assert json.loads((fed.run / "federation/members.json").read_text())["members"] == []


def test_a_node_that_waits_joins_the_next_run_also_in_a_folder_that_was_made_anew(tiny_model, tmp_path):  # noqa: F811
    """The server has another run and other node ids then."""
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=1)
        server = fed.serve()
        nodes = [fed.node(0, once=False)]
        fed.wait_until_said("is client 0")
        server.kill()
        server.wait()
        shutil.rmtree(fed.run)
        server = fed.serve()
        nodes.append(fed.node(1, once=False))
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
        assert [node.poll() for node in nodes] == [None, None]
    assert "does not know this node any more (401); joining again" in fed.node_log(0).read_text()


def test_a_node_for_one_run_says_why_it_ends_when_the_server_has_given_it_up(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=500)
        server = fed.serve()
        nodes = [fed.node(0), fed.node(1)]
        fed.wait_until_said("round 1/500: loss")
        server.kill()
        server.wait()
        shutil.rmtree(fed.run)
        fed.serve()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [1, 1]
    for i in range(2):
        said = fed.node_log(i).read_text().splitlines()[-1]
        assert said.startswith("evenkeel: [config] the server offers run ") and "with --once it takes part in one" in said
    assert fed.said("does not join: ") == 2


# --- deadlines of scores ---

@nightly
def test_a_frozen_node_costs_one_deadline_in_a_round_not_one_for_each_score(tiny_model, tmp_path):  # noqa: F811
    """After each round there are four scores that the frozen node does not give."""
    deadline = 3
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=3, deadline=deadline, every=1, budgets="[0.25, 0.5, 1.0]", per_client="true")
        server = fed.serve()
        nodes = [fed.node(0), fed.node(1)]
        fed.wait_until_said("round 1/3: loss")
        nodes[1].send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        assert wait_for(server, fed.log, 150) == 0, fed.log.read_text()
        took = time.monotonic() - frozen
        assert wait_for(nodes[0], fed.node_log(0)) == 0
    # Three deadlines, then ten seconds for the final adapter.
    assert took < 3 * deadline + 10 + 20, fed.log.read_text()
    missing = lines(fed.run / "missing_scores.jsonl")
    assert {one["client"] for one in missing} == {1} and {2, 3} <= {one["round"] for one in missing}
    assert all("too late before in this round" in one["reason"] or f"within {deadline} s" in one["reason"] for one in missing), missing
    rounds = lines(fed.run / "rounds.jsonl")
    assert [[lost["id"] for lost in one.get("lost", [])] for one in rounds[1:]] == [[1], [1]]
    merged = [one for one in lines(fed.run / "evaluations.jsonl") if "client" not in one and one["round"] == 3]
    assert [one["missing_clients"] for one in merged] == [[1]] * 3


def test_a_frozen_node_that_goes_on_takes_part_in_the_next_round(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=12, deadline=3, every=1)
        server = fed.serve()
        nodes = [fed.node(0), fed.node(1)]
        fed.wait_until_said("round 1/12: loss")
        nodes[1].send_signal(signal.SIGSTOP)
        fed.wait_until_said("is lost: ")
        nodes[1].send_signal(signal.SIGCONT)
        assert wait_for(server, fed.log, 200) == 0, fed.log.read_text()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [0, 0]
    rounds = lines(fed.run / "rounds.jsonl")
    assert any(one.get("lost") for one in rounds) and not rounds[-1].get("lost")
    assert not [one for one in lines(fed.run / "missing_scores.jsonl") if one["round"] == 12]


# --- damage on a connection without TLS ---

class BitFlips:
    """A proxy that forwards connections to a server and flips one bit in some of the pieces, in both directions."""

    def __init__(self, server, share, seed):
        self.server, self.share, self.random, self.flips = server, share, random.Random(seed), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=pair, daemon=True).start()

    def forward(self, source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(self.damaged(bytearray(piece)))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def damaged(self, piece):
        if self.random.random() < self.share:
            bit = self.random.randrange(8 * len(piece))
            piece[bit // 8] ^= 1 << (bit % 8)
            self.flips += 1
        return bytes(piece)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=slow), pytest.param(3, marks=slow)])
def test_what_is_damaged_without_tls_is_asked_again_at_once(seed, tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, every=1)
        server = fed.serve()
        host, port = fed.address.split(":")
        proxy = BitFlips((host, int(port)), 0.03, seed)
        nodes = [fed.node(0, address=proxy.address), fed.node(1)]
        begun = time.monotonic()
        assert wait_for(server, fed.log, 170) == 0, fed.log.read_text() + fed.node_log(0).read_text()
        assert wait_for(nodes[1], fed.node_log(1)) == 0
        assert time.monotonic() - begun < 170  # the lease of a reply is 180 s
    assert proxy.flips > 5 and "came no further" not in fed.log.read_text()
    assert not any(one.get("lost") for one in lines(fed.run / "rounds.jsonl"))
    succeed("train", fed.config, "--out", tmp_path / "local")
    assert adapter_of(fed.run) == adapter_of(tmp_path / "local")


# --- leftovers of killed processes ---

def test_a_server_and_a_node_remove_leftovers_of_killed_processes_and_nothing_else(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=1)
        server = fed.serve()
        nodes = [fed.node(0), fed.node(1)]
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [0, 0]
        (fed.run / "items").mkdir()
        (fed.run / "federation/arriving").mkdir(exist_ok=True)
        memory = tmp_path / "north.pem.memory"
        dead = [fed.run / name for name in ("federation/nodes.json.part-7-0", "federation/members.json.part-1-12", "items/round-1.jsonl.part-99-3",
                                            "evaluations.jsonl.part-12-0", "adapter/adapter_model.safetensors.part-3-3", "manifest.json.part-4-1",
                                            "report.html.part-4-1", "federation/arriving/arriving-7-0")]
        dead += [memory / "link.json.part-8-1", memory / "0123456789abcdef-1.json.part-5-0"]
        foreign = [fed.run / "notes.txt.part-7-0", fed.run / "federation/nodes.json.part-x", fed.run / "items/mine.part-1-1",
                   tmp_path / "north.pem.part-8-1", memory / "notes.part-1-1"]
        for file in dead + foreign:
            file.write_text("half")
        server = fed.serve("--resume", "--set", "train.rounds=2")
        nodes = [fed.node(0), fed.node(1)]
        assert wait_for(server, fed.log) == 0, fed.log.read_text()
        assert [wait_for(node, fed.node_log(i)) for i, node in enumerate(nodes)] == [0, 0]
    assert [file for file in dead if file.exists()] == []
    assert [file for file in foreign if not file.exists()] == []


# --- a node that leaves ---

@pytest.mark.parametrize("at_work", [False, True], ids=["waiting", "training"])
def test_a_stopped_node_does_not_count_as_online(at_work, tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model, rounds=500)
        fed.serve()
        node = fed.node(0, once=False)
        fed.wait_until_said("is client 0")
        if at_work:
            fed.node(1)
            fed.wait_until_said("round 1/500: loss")
        online = fed.metric("evenkeel_nodes_online")
        node.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert wait_for(node, fed.node_log(0), 30) in (0, 130)
        assert fed.metric("evenkeel_nodes_online") == online - 1
        assert time.monotonic() - begun < 15
        assert fed.said("has signed off") == 1
        fed.node(0, once=False)  # it is not taken for a second node with this key
        fed.wait_until_said("has joined", 2 + at_work)


@slow
def test_a_node_ends_soon_although_its_server_is_away(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        fed = Federation(processes, tmp_path, tiny_model)
        server = fed.serve()
        node = fed.node(0, once=False)
        fed.wait_until_said("is client 0")
        server.send_signal(signal.SIGSTOP)  # connections open, and nobody answers
        node.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(60)
        assert node.poll() in (0, 130), fed.node_log(0).read_text()
