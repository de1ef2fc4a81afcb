"""Tests the Flower app of flower/: its line protocol, both halves with test doubles, its bundle, and a run on a stock
SuperLink with a stock SuperNode (flwr 1.42.0), with every array equal bit for bit.
"""

import json
import os
import pathlib
import shutil
import socket
import sys
import threading
import types
import zipfile

import app_doubles as doubles
import flower_peer as peer
import pytest
from evenkeel_flower import client_app, lines, server_app
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    with lines.Lines(one) as left, lines.Lines(other) as right:
        yield left, right


def beside(work):
    """Runs `work` in another thread, because a line does not fit into a socket's buffer."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


# --- lines ---

def test_records_cross_bit_for_bit_with_every_kind_of_value(pair):
    left, right = pair
    sent = doubles.content(1)
    beside(lambda: left.send({"op": "send"}, sent))
    line, got = right.receive_content()
    assert line["op"] == "send" and list(got) == ["evenkeel", "arrays"]
    assert doubles.same_values(got["evenkeel"])
    for name, entry in sent["arrays"].items():
        assert vars(got["arrays"][name])["data"] == entry.data and got["arrays"][name].shape == entry.shape, name
    assert all(entry["offset"] % 64 == 0 for entry in line["records"][1]["arrays"])


def test_long_and_concurrent_lines_keep_their_descriptors(pair):
    left, right = pair

    def talk():
        for number in (1, 2, 3):
            left.send({"number": number, "text": "x" * 300_000}, doubles.content(number) if number != 2 else None)
    beside(talk)
    for number in (1, 2, 3):
        line, got = right.receive_content()
        assert line["number"] == number and len(line["text"]) == 300_000
        assert (got is None) == (number == 2)
        assert number == 2 or got["arrays"]["long"].data == doubles.zoo(number)["long"].data
    assert not right.memories


def test_memory_that_may_shrink_or_is_too_small_is_rejected(pair):
    left, right = pair
    open_memory = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.ftruncate(open_memory, 4096)
    arrays = [{"name": "arrays", "arrays": [{"name": "a", "dtype": "uint8", "shape": [8], "stype": "numpy.ndarray", "offset": 0,
                                             "bytes": 136}]}]
    left.send_line({"records": arrays, "bytes": 4096}, open_memory)
    with pytest.raises(ValueError, match="sealed against shrinking"):
        right.receive_content()
    sealed = lines.sealed_memory([(0, b"x" * 100)])
    left.send_line({"records": arrays, "bytes": 4096}, sealed)
    with pytest.raises(ValueError, match="too short"):
        right.receive_content()
    left.send_line({"records": arrays, "bytes": 100}, sealed)
    with pytest.raises(ValueError, match="136 bytes, of memory of 100"):
        right.receive_content()
    left.send_line({"records": arrays}, None)
    with pytest.raises(ValueError, match="without the memory"):
        right.receive_content()
    left.send_line({"records": arrays, "bytes": 100}, None)
    with pytest.raises(ValueError, match="without the memory"):
        right.receive_content()
    os.close(open_memory), os.close(sealed)


def test_the_end_of_a_connection_is_detected_and_a_broken_line_is_rejected(pair):
    left, right = pair
    left.connection.sendall(b'[1, 2]\n{"cut": ')
    with pytest.raises(ValueError, match="no JSON object"):
        right.receive()
    left.close()
    assert right.receive() == (None, None)


# --- the client's half ---

def context(**node_config):
    return Context(run_id=1, node_id=2, node_config=node_config, state=RecordDict(), run_config={})


def message(**more):
    from flwr.app.message.message import make_message  # creates messages as a SuperNode does
    from flwr.app.metadata import Metadata
    told = Metadata(run_id=34, message_id="m1", src_node_id=1, dst_node_id=12, reply_to_message_id="", group_id="3",
                    created_at=1.0, ttl=600.0, message_type="train")
    return make_message(told, doubles.content(1, **more))


@pytest.fixture
def node(tmp_path):
    made = doubles.NodeDouble(tmp_path / "node.sock")
    yield made, {"evenkeel.socket": str(tmp_path / "node.sock")}
    made.close()


def test_a_message_is_relayed_to_the_resident_node_and_its_reply_returned(node):
    resident, where = node
    sent = message()
    reply = client_app.answer(sent, context(**where))
    for name, entry in sent.content["arrays"].items():
        assert doubles.changed(reply.content["arrays"][name].data) == entry.data, name
    assert reply.metadata.reply_to_message_id == "m1" and reply.content["metrics"]["num-examples"] == 3
    asked = resident.asked[0]
    assert {key: asked[key] for key in ("op", "version", "node", "run", "message", "type", "group")} == {
        "op": "answer", "version": 1, "node": 12, "run": 34, "message": "m1", "type": "train", "group": "3"}
    peer.wait_until("the node does not hear that its answer was taken", lambda: resident.taken == 1)


def test_rejections_of_the_node_and_a_missing_node_are_errors_with_a_reason(node, tmp_path):
    resident, where = node
    refused = client_app.answer(message(refuse="K = 9 was not agreed on"), context(**where))
    assert (refused.error.code, refused.error.reason) == (6, "K = 9 was not agreed on")
    assert resident.taken == 0
    for config, word in (({"evenkeel.socket": str(tmp_path / "nowhere")}, "does not answer"), ({}, "names no evenkeel.socket")):
        absent = client_app.answer(message(), context(**config))
        assert absent.error.code == 6 and word in absent.error.reason


# --- the server's half ---

class GridDouble:
    """A SuperLink with two nodes. The second one fails, and a third one, 9, has left."""

    def __init__(self):
        self.pushed = {}

    def get_nodes(self):
        return [types.SimpleNamespace(node_id=2**63 + 5, name=""), types.SimpleNamespace(node_id=7, name="site-one")]

    def push_messages(self, messages):
        if messages[0].metadata.dst_node_id == 9:
            return [None]  # as for a node that has left
        for sent in messages:
            self.pushed[f"m{len(self.pushed)}"] = sent
        return [f"m{len(self.pushed) - 1}"]

    def pull_messages(self, ids):
        for one in ids:
            sent = self.pushed[one]
            error = types.SimpleNamespace(code=5, reason="the node is gone")
            yield types.SimpleNamespace(content=sent.content, error=error, has_error=lambda: sent.metadata.dst_node_id == 7)


@pytest.fixture
def relay(pair, monkeypatch):
    # Messages are created by a process of Flower
    for name, value in (("_run_id", 34), ("_node_id", 1), ("_task_id", 5)):
        monkeypatch.setattr(TaskIdentity, name, value)
    engine, app = pair
    grid = GridDouble()
    made = server_app.Relay(grid, app, 34)
    over = []
    thread = beside(lambda: over.append(made.run()))
    yield engine, grid, over
    engine.close()
    thread.join(10)


def test_requests_of_the_program_are_answered_with_flowers_grid(relay):
    engine, grid, over = relay
    assert engine.ask({"op": "hello", "version": 1})[0]["run"] == 34
    assert engine.ask({"op": "nodes"})[0]["nodes"] == [{"id": 7, "name": "site-one"}, {"id": 2**63 + 5, "name": ""}]
    assert engine.ask({"op": "poll", "wait": 0})[0]["arrival"] is None
    sent = doubles.content(1)
    ids = [engine.ask({"op": "send", "node": node, "type": "train", "group": "2", "ttl": 60.0}, sent)[0]["message"]
           for node in (2**63 + 5, 7)]
    assert [one.metadata.ttl for one in grid.pushed.values()] == [60.0, 60.0]
    answer, back = engine.ask({"op": "poll", "wait": 5})
    assert answer["arrival"] == {"message": ids[0], "node": 2**63 + 5, "kind": "reply"}
    assert back["arrays"]["special"].data == sent["arrays"]["special"].data
    assert engine.ask({"op": "poll", "wait": 5})[0]["arrival"] == {
        "message": ids[1], "node": 7, "kind": "error", "code": 5, "error": "the node is gone"}
    engine.ask({"op": "done", "folder": "there"})
    peer.wait_until("the relay does not end", lambda: over)
    assert over[0]["folder"] == "there"


def test_arrays_of_one_memfd_are_built_once_and_a_cancelled_message_is_not_sent(relay):
    engine, grid, _ = relay
    memory = lines.sealed_memory(images := [(0, doubles.zoo(1)["special"].data)])
    told = [{"name": "arrays", "arrays": [{"name": "a", "dtype": "float32", "shape": [2, 3], "stype": "numpy.ndarray", "offset": 0,
                                           "bytes": len(images[0][1])}]}]
    for round_ in "12":
        engine.send_line({"op": "send", "node": 2**63 + 5, "type": "train", "records": told + [
            {"name": "evenkeel", "config": {"round": round_}}], "bytes": len(images[0][1])}, memory)
        assert engine.receive()[0]["ok"]
    os.close(memory)
    one, other = (sent.content for sent in grid.pushed.values())
    assert one["arrays"] is other["arrays"] and one["evenkeel"]["round"] == "1" and other["evenkeel"]["round"] == "2"
    engine.ask({"op": "forget", "message": "m0"})
    assert engine.ask({"op": "poll", "wait": 5})[0]["arrival"]["message"] == "m1"
    assert engine.ask({"op": "poll", "wait": 0})[0]["arrival"] is None


def test_a_message_that_flower_does_not_take_arrives_as_an_error(relay):
    engine, grid, _ = relay
    untaken, forgotten = (engine.ask({"op": "send", "node": 9, "type": type_, "group": "2"}, doubles.content(1))[0]["message"]
                          for type_ in ("train", "query"))
    engine.ask({"op": "forget", "message": forgotten})
    assert engine.ask({"op": "poll", "wait": 5})[0]["arrival"] == {
        "message": untaken, "node": 9, "kind": "error", "code": 5, "error": "Flower takes no message to it"}
    assert engine.ask({"op": "poll", "wait": 0})[0]["arrival"] is None and not grid.pushed


@pytest.mark.parametrize("line, word", [({"op": "dance"}, "allowed: hello"), ({"op": "hello", "version": 9}, "version 9"),
                                        ({"op": "send", "node": 7}, "records"), ({}, "None")])
def test_an_invalid_request_is_rejected_and_the_next_one_answered(relay, line, word):
    engine, _, _ = relay
    with pytest.raises(lines.Refused, match=word):
        engine.ask(line)
    assert engine.ask({"op": "nodes"})[0]["ok"]


def settings(program, **more):
    keys = {"config": "run.toml", "out": "", "set": "", "resume": False, "program": str(program), "socket": "", "wait": 20.0}
    return {**keys, **more}


def test_the_program_is_started_with_the_configured_arguments(tmp_path):
    words = server_app.command(settings("evenkeel", out="/srv/run", set="train.rounds=3; method.name=fedit", resume=True), "s.sock")
    assert words == ["evenkeel", "serve", str(ROOT / "flower/run.toml"), "--grid", "s.sock", "--out", "/srv/run", "--set",
                     "train.rounds=3", "--set", "method.name=fedit", "--resume"]
    assert server_app.command(settings("evenkeel", config="/etc/run.toml"), "s.sock")[2] == "/etc/run.toml"
    with pytest.raises(RuntimeError, match="evenkeel.config is empty"):
        server_app.command(settings("evenkeel", config=""), "s.sock")


@pytest.mark.parametrize("changes, word", [({"program": "/bin/false"}, "did not begin with exit code 1"),
                                           ({"socket": "nowhere.sock", "wait": 0.2}, "nobody listens on nowhere.sock")])
def test_a_missing_program_is_reported(changes, word):
    with pytest.raises(RuntimeError, match=word), server_app.engine(settings(**{"program": "x", **changes})):
        pass


def test_what_the_program_writes_is_printed_line_by_line_by_the_app(tmp_path, capfd, monkeypatch):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho waiting for harbour >&2\necho a table\nprintf 'caf\\351 without an end' >&2\nexit 3\n")
    program.chmod(0o755)
    printed = []
    monkeypatch.setattr(server_app, "print", lambda text, **_: printed.append(text), raising=False)
    with pytest.raises(RuntimeError, match="did not begin with exit code 3"), server_app.engine(settings(program)):
        pass
    assert printed == ["waiting for harbour", "a table", "caf\ufffd without an end"]
    assert capfd.readouterr() == ("", "")  # all of it went through print, which Flower mirrors


# --- the bundle, and a stock SuperLink ---

@pytest.fixture(scope="module")
def link(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superlink")
    shutil.copytree(ROOT / "flower", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    link = peer.SuperLink(folder)
    with link.processes:
        yield link


@pytest.fixture(scope="module")
def engine(link):
    """Writes the test double as an executable program and returns its path."""
    program = link.folder / "engine"
    program.write_text(f"#!/bin/sh\nEVENKEEL_APP={ROOT}/flower exec {sys.executable} -B {doubles.__file__} \"$@\"\n")
    program.chmod(0o755)
    return program


def run(link, engine, name, wanted, *more):
    (link.folder / f"{name}.json").write_text(json.dumps(wanted))
    words = {"evenkeel.config": str(link.folder / f"{name}.json"), "evenkeel.out": str(link.folder / name), "evenkeel.program": str(engine)}
    told = link.run(words)
    return link.folder / name / "verdict.json", told + link.process.log.read_text()


def test_flwr_builds_the_bundle(link):
    link.flwr("build")
    (bundle,) = link.app.glob("*.fab")
    names = {name for name in zipfile.ZipFile(bundle).namelist() if not name.startswith(".info")}
    assert {"pyproject.toml", "LICENSE", "README.md", "evenkeel_flower/client_app.py", "evenkeel_flower/server_app.py",
            "evenkeel_flower/lines.py"} <= names
    bundle.unlink()


def test_a_run_on_a_stock_superlink_relays_every_array_bit_for_bit(link, engine, tmp_path):
    resident = doubles.NodeDouble(tmp_path / "node.sock")
    link.supernode("--node-config", f'evenkeel.socket="{tmp_path / "node.sock"}"')
    verdict, said = run(link, engine, "first", {"nodes": 1, "types": ["query", "train", "evaluate"]})
    assert verdict.exists(), said[-3000:]
    found = json.loads(verdict.read_text())
    assert len(found["nodes"]) == 1 and found["hello"]["flwr"]
    for record in found["rounds"]:
        assert record["replies"] == [{"exact": True, "values": True, "metrics": {"num-examples": 3, "loss": 0.5}}], found
    assert (resident.answered, resident.taken) == (3, 3)
    resident.close()


def test_a_program_that_ends_in_a_run_is_named_with_its_exit_code(link, engine):
    _, said = run(link, engine, "broken-off", {"exit later": 4})
    assert "evenkeel serve went away with exit code 4" in said


def test_flwr_run_streams_what_the_program_writes(link, engine):
    told = link.run({"evenkeel.config": str(link.folder / "nowhere.json"), "evenkeel.out": str(link.folder / "nothing"),
                     "evenkeel.program": str(engine)})
    assert "FileNotFoundError" in told and "nowhere.json" in told, told
