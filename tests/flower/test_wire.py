"""Tests this project's node at a stock SuperLink, a stock SuperNode at this project's coordinator, and both together
(flwr 1.42.0 over HTTP).
"""
import json
import pathlib
import signal
import subprocess
import sys
import time

import echo_app
import flower_peer as peer
import pytest

vectors_file = pathlib.Path(__file__).with_name("vectors.json")
if not peer.ECHO.exists():
    pytest.skip("the program was built without EVENKEEL_FLOWER", allow_module_level=True)


def test_the_stored_vectors_equal_those_of_the_installed_flower():
    """src/flower/format/objects_test.cpp compares this project's objects with the vectors. They are built in another
    process, because it sets another size of chunks. The vectors contain the version that wrote them; another version
    must write the same.
    """
    made = subprocess.run([sys.executable, "-c", "import vectors; print(vectors.text(), end='')"], check=True, capture_output=True,
                          text=True, cwd=vectors_file.parent).stdout
    stored = vectors_file.read_text(encoding="utf-8")
    ours, theirs = (f'"flwr": "{json.loads(text)["flwr"]}"' for text in (stored, made))
    assert made.replace(theirs, ours, 1) == stored


def exact(rounds, nodes):
    assert all(r["missing"] == 0 and len(r["replies"]) == nodes for r in rounds), rounds
    assert all(reply.get("exact") and reply["config"] for r in rounds for reply in r["replies"]), rounds


def lines(process):
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


@pytest.fixture(scope="module")
def insecure(tmp_path_factory):
    link = peer.SuperLink(tmp_path_factory.mktemp("superlink"))
    with link.processes:
        yield link


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure-superlink")
    link = peer.SuperLink(folder, tls=peer.make_tls(folder))
    with link.processes:
        yield link


def allow(link, key, name):
    line = link.folder / f"{name}.pub"
    line.write_text(peer.keygen(key, name))
    link.flwr("supernode", "register", line, "test", "--name", name)


def test_a_native_node_at_a_stock_superlink_returns_every_array_bit_for_bit(insecure, tmp_path):
    peer.keygen(tmp_path / "node.pem")
    node = insecure.node(tmp_path / "node.pem", "--messages", 2, "--chunk", 1 << 20)
    finish = insecure.begin(nodes=1, rounds=2)
    exact(finish(), nodes=1)
    assert node.wait(timeout=600) == 0, node.log.read_text()  # the node waited until its reply was collected before it left
    assert lines(node)[-1] == {"left": True}


@peer.slow
def test_a_killed_native_node_can_be_replaced_at_once(insecure, tmp_path):
    """The first process ends after the pull, as by kill -9, and its message is lost. The next process joins and answers
    the next message.
    """
    peer.keygen(tmp_path / "node.pem")
    first = insecure.node(tmp_path / "node.pem", "--die-after", "pull")
    finish = insecure.begin(nodes=1, rounds=1, wait=60.0)
    assert first.wait(timeout=600) == 9
    second = insecure.node(tmp_path / "node.pem", "--messages", 1)
    peer.wait_until("the second life does not join", lambda: lines(second))
    (lost,) = finish()
    assert lost["replies"] == [] or "error" in lost["replies"][0], lost
    exact(insecure.begin(nodes=1, rounds=1)(), nodes=1)
    assert second.wait(timeout=600) == 0


def test_with_tls_and_an_allow_list_a_native_and_a_stock_node_share_rounds(secure, tmp_path):
    allow(secure, tmp_path / "native.pem", "native")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", tmp_path / "stock"], check=True)
    secure.flwr("supernode", "register", tmp_path / "stock.pub", "test", "--name", "stock")
    native = secure.node(tmp_path / "native.pem", "--messages", 2)
    secure.supernode("--auth-supernode-private-key", tmp_path / "stock")
    rounds = secure.begin(nodes=2, rounds=2)()
    exact(rounds, nodes=2)
    assert sorted(reply["native"] for r in rounds for reply in r["replies"]) == [0, 0, 1, 1]
    assert native.wait(timeout=600) == 0


@peer.slow
def test_a_key_that_is_not_on_the_allow_list_is_rejected(secure, tmp_path):
    peer.keygen(tmp_path / "stranger.pem")
    node = secure.node(tmp_path / "stranger.pem")
    assert node.wait(timeout=600) == 1
    assert "does not know the key SHA256:" in node.log.read_text() or "does not accept this node" in node.log.read_text()


@peer.slow
def test_a_server_with_a_certificate_of_another_authority_is_rejected(secure, tmp_path):
    """It is a transport error, which is retried. Nothing is ever sent to the wrong server."""
    peer.keygen(tmp_path / "node.pem")
    tls = peer.make_tls(tmp_path)
    node = secure.processes.start(peer.ECHO, "node", "--server", f"127.0.0.1:{secure.port}", "--ca", tls["ca.pem"], "--key",
                                  tmp_path / "node.pem", name="stranger")
    peer.wait_until("no word on the certificate", lambda: "not of the given authority" in node.log.read_text())


def serve(processes, folder, *flags):
    process = processes.start(peer.ECHO, "serve", "--folder", folder / "federation", *flags, name="serve")
    peer.wait_until("the coordinator is not up", lambda: lines(process))
    return process, lines(process)[0]["port"]


@pytest.fixture
def processes(tmp_path):
    (tmp_path / "home").mkdir()
    with peer.Processes(tmp_path, tmp_path / "home") as processes:
        yield processes


def test_a_stock_and_a_native_node_at_our_coordinator_return_every_array_bit_for_bit(processes, tmp_path):
    app = echo_app.write(tmp_path)
    subprocess.run([peer.BIN / "flwr", "build"], cwd=app, env=peer.environment(tmp_path / "home"), check=True, capture_output=True)
    (bundle,) = app.glob("*.fab")
    tls = peer.make_tls(tmp_path)
    allowed = peer.keygen(tmp_path / "native.pem", "native")
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-C", "stock", "-f", tmp_path / "stock"], check=True)
    (tmp_path / "keys.txt").write_text(allowed + (tmp_path / "stock.pub").read_text())
    server, port = serve(processes, tmp_path, "--allow", tmp_path / "keys.txt", "--certificate", tls["server.pem"], "--tls-key",
                         tls["server.key"], "--fab", bundle, "--fab-id", "evenkeel/echo", "--nodes", 2, "--messages", 2, "--bytes", 30_000_000, "--arrays", 6)
    native = processes.start(peer.ECHO, "node", "--server", f"127.0.0.1:{port}", "--ca", tls["ca.pem"], "--key",
                             tmp_path / "native.pem", "--messages", 2, name="node")
    peer.supernode(processes, port, tls, "--auth-supernode-private-key", tmp_path / "stock")
    assert server.wait(timeout=600) == 0, server.log.read_text()
    assert sorted((r["native"], r["exact"]) for r in lines(server) if "round" in r) == [(0, True), (0, True), (1, True), (1, True)]
    assert native.wait(timeout=600) == 0, native.log.read_text()


@peer.slow
def test_a_single_array_above_2_gib_is_sent_and_returned(processes, tmp_path):
    """A protocol buffer is limited to 2 GiB, so an array is sent in chunks of 16 MiB. Both sides store it in files."""
    allowed = peer.keygen(tmp_path / "node.pem", "node")
    (tmp_path / "keys.txt").write_text(allowed)
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    server, port = serve(processes, tmp_path, "--allow", tmp_path / "keys.txt", "--spool", tmp_path / "here", "--bytes", 2_300_000_000,
                         "--arrays", 1)
    node = processes.start(peer.ECHO, "node", "--server", f"127.0.0.1:{port}", "--key", tmp_path / "node.pem", "--spool",
                           tmp_path / "there", name="node")
    assert server.wait(timeout=600) == 0, server.log.read_text()
    (round_,) = (r for r in lines(server) if "round" in r)
    assert round_["exact"] and round_["bytes"] > 2**31, round_
    assert node.wait(timeout=600) == 0, node.log.read_text()


@peer.slow
def test_a_self_registered_node_registers_again_after_a_restart_of_the_superlink(tmp_path):
    link = peer.SuperLink(tmp_path)
    with link.processes:
        peer.keygen(tmp_path / "node.pem")
        node = link.node(tmp_path / "node.pem", "--messages", 2)
        exact(link.begin(nodes=1, rounds=1)(), nodes=1)
        peer.end(link.process)
        time.sleep(1)
        link.start()
        exact(link.begin(nodes=1, rounds=1)(), nodes=1)
        assert "registering again" in node.log.read_text()
        assert node.wait(timeout=600) == 0


@peer.slow
def test_a_stopped_run_ends_for_the_node_which_continues(insecure, tmp_path):
    peer.keygen(tmp_path / "node.pem")
    node = insecure.node(tmp_path / "node.pem", "--messages", 1)
    peer.wait_until("the node does not join", lambda: lines(node))
    node.send_signal(signal.SIGSTOP)
    insecure.begin(nodes=1, rounds=1)
    run_id = json.loads(insecure.flwr("list", "test", "--format", "json"))["runs"][0]["run-id"]
    time.sleep(2)
    insecure.flwr("stop", run_id, "test")
    node.send_signal(signal.SIGCONT)
    exact(insecure.begin(nodes=1, rounds=1)(), nodes=1)
    assert node.wait(timeout=600) == 0
