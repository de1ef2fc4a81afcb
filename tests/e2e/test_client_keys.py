"""Tests that a client of a federation is its key: which node becomes which client, keys that are admitted, removed and
replaced while a server runs, nodes that return with another content, clients that join late or are left out.
"""

import base64
import contextlib
import hashlib
import json
import re
import shutil
import signal
import subprocess

import pytest

from test_federation import Processes, free_port, node_arguments, same_scores, wait_for, wait_until
from tiny import PROGRAM, evenkeel, lines, one_line, succeed, tiny_model, without_seconds  # noqa: F401

ADAPTER = "adapter/adapter_model.safetensors"
ROWS = {"north": 9, "hill": 4}  # one row of each is held out


def write_rows(file, name, count):
    wards = ["cardiology", "surgery", "neurology"]
    file.write_text("".join(json.dumps({"prompt": f"Case {name} {i}: which ward?", "completion": wards[(i + len(name)) % 3]}) + "\n"
                            for i in range(count)))


def fingerprint(line):
    """Returns the fingerprint of a key, as members.json has it. line: of the list of keys."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(line.split()[1])).digest()).decode().rstrip("=")


class Site:
    """A server's folder with two organisations, north and hill."""

    def __init__(self, processes, folder, model):
        self.processes, self.folder, self.model = processes, folder, model
        self.address, self.run, self.log = f"127.0.0.1:{free_port()}", folder / "run", folder / "serve.log"
        self.lines = {name: succeed("keygen", folder / f"{name}.pem").stdout for name in ROWS}
        for name, count in ROWS.items():
            write_rows(folder / f"{name}.jsonl", name, count)

    @property
    def prints(self):
        """Returns the fingerprint of each key, as members.json has it."""
        return {name: fingerprint(line) for name, line in self.lines.items()}

    def allow(self, *key_lines):
        (self.folder / "keys.new").write_text("".join(key_lines))
        (self.folder / "keys.new").rename(self.folder / "keys.txt")

    def config(self, of_clients="", rounds=2, data=None, **of_client):
        """Writes the config. `of_client` has further keys of a client."""
        clients = "".join(f'[[clients.client]]\nname = "{name}"\nbudget = {budget}\ndata = ["{data(name) if data else "rows"}"]\n{of_client.get(name, "")}\n'
                          for name, budget in (("north", 1.0), ("hill", 0.5)))
        file = self.folder / "run.toml"
        file.write_text(f"""name = "keys"
seed = 3
threads = 1
[model]
path = "{self.model}"
compute_dtype = "float32"
[lora]
rank = 2
[data]
task = "files"
files = {{ score = "choice", options = ["cardiology", "surgery", "neurology"] }}
[method]
name = "fedit"
[train]
rounds = {rounds}
local_epochs = 10.0
batch_size = 2
accumulation = 1
[evaluate]
budgets = [1.0]
as_exported = false
max_new_tokens = 4
[clients]
{of_clients}
{clients}""")
        return file

    def serve(self, *more):
        return self.processes.start("serve", self.folder / "run.toml", "--listen", self.address, "--allow", self.folder / "keys.txt", "--insecure",
                                    "--no-evaluation", "--out", self.run, *more, log=self.log)

    def node(self, name, *more, key=None, data=None):
        log = self.folder / f"{name}.log"
        words = node_arguments(key or self.folder / f"{name}.pem", self.model, self.address, "--data", data or self.folder / f"{name}.jsonl", *more)
        return self.processes.start(*words, log=log), log

    def until(self, text):
        wait_until(lambda: text in self.log.read_text(), self.log, 120)

    def members(self):
        return {one["client"]: one for one in json.loads((self.run / "federation/members.json").read_text())["members"]}


@pytest.fixture
def site(tiny_model, tmp_path):  # noqa: F811
    with Processes() as processes:
        made = Site(processes, tmp_path, tiny_model)
        made.allow(*made.lines.values())
        yield made


@contextlib.contextmanager
def frozen(process):
    """Stops a node, so that the round waits for it."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def listed(site):
    """Returns what the audit log says of the list of keys: kind, key and client of each event."""
    return [(event["kind"], event["key"], event.get("client")) for event in lines(site.run / "federation/audit.jsonl")
            if event["kind"] in ("admitted", "revoked")]


def trained(run):
    return [[(one["name"], one["budget"], one["examples"]) for one in line["clients"]] for line in lines(run / "rounds.jsonl")]


def test_a_client_is_its_key_in_whatever_order_nodes_come_and_whatever_they_are_called(site):
    site.allow(*(line.replace(f" {name}\n", f" {other}\n") for (name, line), other in zip(site.lines.items(), ["hill", "north"])))
    keys = {name: f'key = "{print_}"' for name, print_ in site.prints.items()}
    file = site.config(data=lambda name: site.folder / f"{name}.jsonl", **keys)
    succeed("train", file, "--out", site.folder / "local")
    server = site.serve()
    site.node("hill")
    site.until("is client 1")
    site.node("north")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert trained(site.run) == trained(site.folder / "local") == [[("north", 1.0, 8), ("hill", 0.5, 3)]] * 2
    assert (site.run / ADAPTER).read_bytes() == (site.folder / "local" / ADAPTER).read_bytes()
    assert [one["assigned"] for one in site.members().values()] == ["key", "key"]
    assert [one["key"] for one in site.members().values()] == list(site.prints.values())


def test_a_node_that_no_client_names_is_refused_on_both_sides_until_the_list_is_mended(site):
    site.allow(site.lines["north"].replace(" north\n", " north.hospital.example\n"), site.lines["hill"])
    site.config(rounds=1)
    server = site.serve()
    node, log = site.node("north")
    assert wait_for(node, log, 120) == 1
    reason = f'no client of the config has key = "{site.prints["north"]}" or name = "north.hospital.example"'
    assert f"the server does not take this node: {reason}" in log.read_text()
    said = site.log.read_text()
    assert f"north.hospital.example does not join: {reason}" in said and "[[clients.client]]" in said, said
    assert "no node can be client 0 (north): the list of keys has no line that ends in north" in said
    assert not site.members()
    site.allow(*site.lines.values())
    site.until("was read again: 2 keys may join")
    site.node("hill")
    site.until("is client 1")
    again, _ = site.node("north")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert trained(site.run) == [[("north", 1.0, 8), ("hill", 0.5, 3)]]
    assert again.wait(60) == 0


def test_clients_that_are_dealt_out_by_arrival_are_warned_of_and_recorded(site):
    site.allow(*(line.replace(f" {name}\n", f" {name}.example\n") for name, line in site.lines.items()))
    site.config('assign = "arrival"', rounds=1)
    server = site.serve()
    site.node("hill")
    site.until("is client 0")
    site.node("north")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert "hill.example becomes client 0 (north) because it is the next to come" in site.log.read_text()
    assert [one["assigned"] for one in site.members().values()] == ["arrival", "arrival"]
    record, = lines(site.run / "rounds.jsonl")
    assert [(one["name"], one["node"]) for one in record["clients"]] == [("north", "hill.example"), ("hill", "north.example")]


@pytest.mark.parametrize("changed", ["rows", "base"])
def test_a_node_that_returns_with_another_content_is_refused_until_it_has_the_old_one(changed, site):
    site.config("quorum = 1\ndeadline = 600", rounds=4, data=None)
    server = site.serve()
    north, _ = site.node("north")
    hill, log = site.node("hill")
    site.until("round 1/4: loss")
    with frozen(north):
        hill.kill()
        hill.wait()
        write_rows(site.folder / "other.jsonl", "other", ROWS["hill"])
        again = {"data": site.folder / "other.jsonl"}
        if changed == "base":
            again = {}
            other = site.folder / "other-model"
            shutil.copytree(site.model, other)
            (other / "generation_config.json").write_text('{"eos_token_id": 0}')
            site.model, kept = other, site.model
        refused, log = site.node("hill", **again)
        assert wait_for(refused, log, 120) == 1
        assert f"this node comes back with another content than it joined with: {changed}" in log.read_text()
        if changed == "base":
            site.model = kept
        site.node("hill")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    lost = [one for line in lines(site.run / "rounds.jsonl") for one in line.get("lost", [])]
    assert {one["name"] for one in lost} == {"hill"} and changed in lost[0]["reason"], lost
    assert [name for name, _, _ in trained(site.run)[-1]] == ["north", "hill"], "it takes part again"
    assert not site.members()[1]["changes"]


def test_other_rows_of_a_node_that_returns_may_be_recorded(site):
    site.config('on_change = "record"', rounds=3)
    server = site.serve()
    north, _ = site.node("north")
    hill, _ = site.node("hill")
    site.until("round 1/3: loss")
    with frozen(north):
        hill.kill()
        hill.wait()
        write_rows(site.folder / "other.jsonl", "other", ROWS["hill"])
        before = site.members()[1]["content"]["rows"]
        site.node("hill", data=site.folder / "other.jsonl")
        site.until("hill comes back with another content than it joined with: rows, test rows; recorded")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    change, of_tests = site.members()[1]["changes"]
    assert of_tests["what"] == "test rows" and change["what"] == "rows" and change["was"] == before and change["after_round"] in (1, 2)
    text = (site.run / "federation/members.json").read_text()
    salt = json.loads(next((site.folder / "hill.pem.memory").glob("*-salt.json")).read_text())["salt"]
    assert salt not in text and len(salt) == 64


def test_a_key_that_is_replaced_while_the_server_runs_keeps_its_client(site):
    file = site.config(rounds=3, data=lambda name: site.folder / f"{name}.jsonl")
    succeed("train", file, "--out", site.folder / "local")
    server = site.serve()
    north, _ = site.node("north")
    hill, log = site.node("hill")
    site.until("round 1/3: loss")
    old = site.prints["hill"]
    with frozen(north):
        stranger = succeed("keygen", site.folder / "hill-3.pem", "--comment", "hill").stdout
        site.allow(site.lines["north"], stranger)
        site.until("hill: its key was removed")
        unknown, said = site.node("hill-3", data=site.folder / "hill.jsonl")
        assert wait_for(unknown, said, 120) == 1 and f"write replaces={old} after hill" in said.read_text()
        line = succeed("keygen", site.folder / "hill-2.pem", "--comment", "hill", "--replaces", old).stdout
        assert line.endswith(f" hill replaces={old}\n")
        site.allow(site.lines["north"], line)
        site.until(f"in the place of {old}")
        assert wait_for(hill, log, 120) == 1 and "is not known" in log.read_text()
        site.node("hill", key=site.folder / "hill-2.pem")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert (site.run / ADAPTER).read_bytes() == (site.folder / "local" / ADAPTER).read_bytes()
    member = site.members()[1]
    assert [(one["what"], one["was"]) for one in member["changes"]] == [("key", old)] and member["key"] != old
    third = fingerprint(stranger)
    assert listed(site) == [("admitted", third, None), ("revoked", old, None), ("admitted", member["key"], None), ("revoked", third, None),
                            ("admitted", member["key"], 1)]


def test_a_removed_key_loses_its_work_at_once_and_by_name(site):
    site.config(rounds=4)
    server = site.serve()
    north, _ = site.node("north")
    hill, log = site.node("hill")
    site.until("round 1/4: loss")
    with frozen(north):
        site.allow(site.lines["north"])
        site.until("node hill: its key was removed")
        assert wait_for(hill, log, 120) == 1
    assert wait_for(server, site.log, 200) == 0, site.log.read_text()
    last = lines(site.run / "rounds.jsonl")[-1]
    assert [(one["name"], one["reason"]) for one in last["lost"]] == [("hill", "client 1: its key was removed from the list of keys")]
    assert [name for name, _, _ in trained(site.run)[-1]] == ["north"]
    assert listed(site) == [("revoked", site.prints["hill"], None)]


def test_a_damaged_list_is_reported_and_the_last_good_one_stays(site):
    site.config(rounds=1)
    server = site.serve()
    site.node("north")
    site.until("is client 0")
    site.allow(site.lines["north"], "ecdsa-sha2-nistp384 AAAA hill\n")
    site.until("the list that was read before stays in force")
    site.node("hill")
    assert wait_for(server, site.log) == 0, site.log.read_text()


def test_a_client_that_joins_late_takes_part_from_the_round_after(site):
    site.config("start = 1", rounds=4)
    server = site.serve()
    north, _ = site.node("north")
    site.until("round 1/4: loss")
    with frozen(north):
        site.node("hill")
        site.until("is client 1")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    first = site.members()[1]["first_round"]
    assert 2 <= first <= 3 and site.members()[0]["first_round"] == 0
    assert [[name for name, _, _ in one] for one in trained(site.run)] == [["north"]] * first + [["north", "hill"]] * (4 - first)
    assert all("lost" not in line for line in lines(site.run / "rounds.jsonl"))


def test_a_client_is_left_out_after_its_last_round_as_in_a_local_run(site):
    file = site.config(rounds=3, data=lambda name: site.folder / f"{name}.jsonl", hill="until = 1")
    succeed("train", file, "--out", site.folder / "local")
    server = site.serve()
    site.node("north")
    hill, _ = site.node("hill")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert [[name for name, _, _ in one] for one in trained(site.run)] == [["north", "hill"], ["north"], ["north"]]
    assert without_seconds(lines(site.run / "rounds.jsonl")) == without_seconds(lines(site.folder / "local/rounds.jsonl"))
    assert (site.run / ADAPTER).read_bytes() == (site.folder / "local" / ADAPTER).read_bytes()
    same_scores(site.folder / "local", site.run)
    assert {score["rows"] for score in lines(site.run / "evaluations.jsonl")} == {1}, "the row of north"
    assert "client 1 (hill) is left out from round 2 on" in site.log.read_text()
    assert hill.wait(60) == 0, "it is told that the run is over"
    assert not (site.folder / "hill.pem.adapters").exists()


def test_a_second_process_with_a_key_is_refused_and_the_first_one_goes_on(site):
    site.config(rounds=3)
    server = site.serve()
    north, _ = site.node("north")
    site.node("hill")
    site.until("round 1/3: loss")
    with frozen(north):
        second = evenkeel(*node_arguments(site.folder / "hill.pem", site.model, site.address, "--data", site.folder / "hill.jsonl"), timeout=120)
        one_line(second, "hill.pem", "process")
        copy = site.folder / "copy"
        copy.mkdir()
        shutil.copy2(site.folder / "hill.pem", copy)
        second = evenkeel(*node_arguments(copy / "hill.pem", site.model, site.address, "--data", site.folder / "hill.jsonl"), timeout=120)
        one_line(second, site.prints["hill"], "online already")
        site.until("another process has its key")
    assert wait_for(server, site.log) == 0, site.log.read_text()
    assert all("lost" not in line for line in lines(site.run / "rounds.jsonl"))


def test_keygen_that_cannot_print_its_line_leaves_no_key(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "keygen", tmp_path / "a.pem"], stdout=full, stderr=subprocess.PIPE, text=True)
    one_line(done, "standard output: cannot be written")
    assert list(tmp_path.iterdir()) == []


def test_keygen_prints_what_the_server_wants_to_know(tmp_path):
    done = succeed("keygen", tmp_path / "a.pem")
    assert re.search(r"its fingerprint is SHA256:[A-Za-z0-9+/]{43}$", done.stderr.strip())
    one_line(evenkeel("keygen", tmp_path / "b.pem", "--replaces", "SHA256:short"), "--replaces", "SHA256:short")
    assert not (tmp_path / "b.pem").exists()
