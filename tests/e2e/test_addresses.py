"""Checks network addresses: what is refused at once, IPv6, and a client without TLS that asks a server with TLS."""

import contextlib
import os
import re
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from hostile import refused
from test_federation import Processes, free_port, keygen, node_arguments, run_settings, same_run, wait_for, wait_until
from test_tls import Authority
from tiny import CONFIG, PROGRAM, ROOT, evenkeel, one_line, settings, succeed

NEEDS_TLS = "the server speaks TLS: give --ca FILE"
WRONG = ["tcp://server:8000", "HTTP://server:80", "http://server", "https://[::1]", "https://server:443/v1", "http://", "https://me@server:80", "server",
         "server:", ":8000", "server:65536", "server:-1", "server:80/", "server:80/v1", "me@server:80", "me:word@server:80", "server:port", "::1", "::1:8000",
         "[::1]", "[::1", "[server]:80", "[fe80::1%]:80", "[fe80::1%a b]:80", "fe80::1%eth0:80", "a b:80"]


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


@pytest.mark.parametrize("wrong", [*WRONG, "server:0"])
def test_a_wrong_address_is_refused_at_once(wrong, tmp_path, tiny_model):
    (key,) = keygen(tmp_path, 1)
    for words in (["node", "--insecure", "--key", key, "--model", tiny_model, "--once", "--superlink", wrong], ["status", "--insecure", "--server", wrong],
                  ["train", CONFIG, "--out", tmp_path / "run", *settings(cluster__size=2, cluster__rank=1, cluster__store=f'"{wrong}"')]):
        refused(*words, says=["[config]", wrong, "expected HOST:PORT"], untouched=tmp_path)
    if wrong != "server:0":  # a server may listen at any free port
        refused("serve", CONFIG, "--out", tmp_path / "run", "--open", "--insecure", "--listen", wrong, says=["--listen is", wrong, "expected HOST:PORT"],
                untouched=tmp_path)


def test_an_empty_address_is_refused(tmp_path, tiny_model):
    (key,) = keygen(tmp_path, 1)
    refused("node", "--insecure", "--key", key, "--model", tiny_model, "--once", "--superlink", "", says=["--superlink is", "expected HOST:PORT"])
    refused("serve", CONFIG, "--out", tmp_path / "run", "--open", "--insecure", "--listen", "", says=["--listen is", "expected HOST:PORT"])
    refused("status", "--insecure", "--server", "", says=["one of RUN and --server is needed"])


@pytest.mark.parametrize("scheme", ["http://127.0.0.1:8000", "https://server:8000"])
def test_a_store_of_a_cluster_has_no_scheme(scheme, tmp_path):
    refused("train", CONFIG, "--out", tmp_path / "run", *settings(cluster__size=2, cluster__rank=1, cluster__store=f'"{scheme}"'),
            says=["cluster.store is", scheme, "expected HOST:PORT", "without a scheme"], untouched=tmp_path)


def test_a_scheme_has_to_agree_with_the_other_flags(tmp_path, tiny_model):
    (key,), authority = keygen(tmp_path, 1), Authority(tmp_path)
    certificate, secret = authority.server("localhost", ["DNS:localhost"])
    node, status = ["node", "--key", key, "--model", tiny_model, "--once", "--superlink"], ["status", "--server"]
    for words, flag in ((node, "--superlink"), (status, "--server")):
        refused(*words, "http://localhost:80", "--ca", authority.pem, says=[f"{flag} is http://localhost:80, which is without TLS, allowed with --insecure"])
        refused(*words, "https://localhost:80", "--insecure", says=[f"{flag} is https://localhost:80, which is with TLS, allowed with --ca FILE"])
        refused(*words, "https://localhost:80", says=[f"{flag} goes with one of --ca FILE (TLS) and --insecure"])
        refused(*words, "localhost:80", "--insecure", "--ca", authority.pem, says=[f"{flag} goes with one of"])
    serve = ["serve", CONFIG, "--out", tmp_path / "run", "--open", "--listen"]
    refused(*serve, "https://127.0.0.1:0", "--insecure", says=["--listen is https://127.0.0.1:0, which is with TLS", "--certificate FILE and --key FILE"])
    refused(*serve, "http://127.0.0.1:0", "--certificate", certificate, "--key", secret, says=["--listen is http://127.0.0.1:0, which is without TLS"])
    assert not (tmp_path / "run").exists()


ODD = ["[::1]:1", "[fe80::1%lo]:1", "[fe80::1%nosuch0]:1", "[::ffff:127.0.0.1]:1", "[::]:1", "no.such.host.invalid:1", "münchen.invalid:1", "0.0.0.0:1",
       "256.1.1.1:1", "127.1:1", "[2001:db8::1%25eth0]:1", "-:1", "x" * 253 + ":1"]


@pytest.mark.parametrize("address", ODD)
@pytest.mark.parametrize("tls", [False, True], ids=["without TLS", "with TLS"])
def test_no_address_ends_the_program_by_a_signal(tls, address, tmp_path):
    security = ["--ca", Authority(tmp_path).pem] if tls else ["--insecure"]
    scheme = "https" if tls else "http"
    for text in (address, f"{scheme}://{address}", f"{scheme}://{address}/"):
        done = evenkeel("status", "--server", text, *security)
        assert done.returncode == 1 and done.stderr.startswith("evenkeel: ") and done.stderr.count("\n") == 1, (done.returncode, done.stderr)


@pytest.mark.parametrize("variable, value", [("MASTER_ADDR", "http://node07"), ("MASTER_ADDR", "node07:29500"), ("MASTER_PORT", "0"), ("MASTER_PORT", "65536"),
                                             ("MASTER_PORT", "29500/x")])
def test_a_wrong_address_of_a_launcher_is_refused(variable, value, tmp_path):
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node07", "MASTER_PORT": "29500", variable: value}
    done = subprocess.run([PROGRAM, "train", CONFIG, "--out", tmp_path / "run"], capture_output=True, text=True, cwd=ROOT, timeout=600, env=variables)
    one_line(done, f"{variable} is {value}, expected")


# --- IPv6 ---

@needs_ipv6
@pytest.mark.parametrize("tls", [False, True], ids=["without TLS", "with TLS"])
def test_a_federation_at_an_ipv6_address_is_a_local_run(tls, tiny_model, tmp_path):
    changes = {"clients__count": 1, "clients__budgets": "[1.0]", "train__rounds": 1}
    (key,), log, said, local = keygen(tmp_path, 1), tmp_path / "serve.log", tmp_path / "node.log", tmp_path / "local"
    serve = ["serve", CONFIG, *run_settings(tiny_model, "fedit", **changes), "--out", tmp_path / "run", "--listen", "[::1]:0", "--allow", tmp_path / "keys.txt"]
    security, scheme = (["--insecure"], "http") if not tls else (["--ca", tmp_path / "ca.pem"], "https")
    if tls:
        authority = Authority(tmp_path)
        certificate, secret = authority.server("elsewhere", ["IP:::1"])
        security[1] = authority.pem
        serve += ["--certificate", certificate, "--key", secret]
    else:
        serve += ["--insecure"]
    with Processes() as processes:
        server = processes.start(*serve, log=log)
        wait_until(lambda: re.search(rf"listening at {scheme}://\[::1\]:\d+\n", log.read_text()), log)
        printed = re.search(r"https?://(\[::1\]:\d+)", log.read_text())
        address = printed[1]
        for text in (address, printed[0], printed[0] + "/"):
            assert "evenkeel_nodes 1" in succeed("status", "--server", text, *security).stdout
        if not tls:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                assert b"evenkeel_nodes 1" in answer.read()
        node = processes.start("node", "--superlink", printed[0], *security, "--key", key, "--model", tiny_model, "--poll", 0.05, "--once", log=said)
        assert wait_for(server, log) == 0, log.read_text()
        assert wait_for(node, said) == 0, said.read_text()
    assert "://::1" not in log.read_text() + said.read_text()
    succeed("train", CONFIG, *run_settings(tiny_model, "fedit", **changes), "--out", local)
    same_run(local, tmp_path / "run")


@needs_ipv6
def test_an_address_in_use_is_printed_in_brackets(tmp_path):
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        address = f"[::1]:{taken.getsockname()[1]}"
        serve = ["serve", CONFIG, *settings(model__path='"builtin:tiny-olmoe"'), "--out", tmp_path / "run", "--open", "--insecure", "--listen", address]
        one_line(evenkeel(*serve), f"cannot listen at {address}: ")
    one_line(evenkeel("status", "--server", address, "--insecure"), f"http://{address}: no figures: no server answers at this address")


@needs_ipv6
def test_ranks_meet_at_an_ipv6_address(tiny_model, tmp_path):
    words = ["train", CONFIG, *settings(model__path=f'"{tiny_model}"', method__name='"fedit"', train__rounds=1, data__limit=30, evaluate__limit=1, threads=1)]
    succeed(*words, "--out", tmp_path / "local")
    cluster = settings(cluster__store=f'"[::1]:{free_port()}"', cluster__size=2)
    ranks = [subprocess.Popen([PROGRAM, *map(str, words), "--out", tmp_path / "run", *cluster, "--set", f"cluster.rank={rank}"], stderr=subprocess.PIPE,
                              stdout=subprocess.DEVNULL, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(2)]
    said = [rank.communicate(timeout=600)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    same_run(tmp_path / "local", tmp_path / "run")


# --- a client without TLS asks a server with TLS ---

ALERT = bytes([21, 3, 3, 0, 2, 2, 70])


def answer_with_alert(connection):
    """As a server that closes the connection before it has read the whole question."""
    connection.recv(1)
    connection.sendall(ALERT)


def close_at_once(connection):
    """As a server that refuses what is no handshake without a word."""
    first = connection.recv(3, socket.MSG_PEEK)
    if first[:1] == b"\x16":
        connection.recv(1 << 16)
        connection.sendall(ALERT)


def answer_late(connection):
    connection.recv(1)
    time.sleep(0.2)
    connection.sendall(ALERT)


def close_every_connection(connection):
    connection.recv(1)


@contextlib.contextmanager
def server_that(answers):
    """Yields the port of a server that calls `answers` with each connection and closes it with unread data, which resets it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                answers(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("answers", [answer_with_alert, close_at_once, answer_late])
def test_a_server_with_tls_is_recognised_by_a_client_without(answers, tiny_model, tmp_path):
    (key,) = keygen(tmp_path, 1)
    with server_that(answers) as port:
        for _ in range(3):
            one_line(evenkeel("status", "--server", f"127.0.0.1:{port}", "--insecure"), f"http://127.0.0.1:{port}: no figures: {NEEDS_TLS}")
            one_line(evenkeel(*node_arguments(key, tiny_model, f"127.0.0.1:{port}")), f"[config] http://127.0.0.1:{port}: {NEEDS_TLS}")


def test_our_server_with_tls_is_recognised_every_time(tiny_model, tmp_path):
    authority, (key,), log = Authority(tmp_path), keygen(tmp_path, 1), tmp_path / "serve.log"
    certificate, secret = authority.server("localhost", ["DNS:localhost"])
    with Processes() as processes:
        processes.start("serve", CONFIG, *run_settings(tiny_model, "fedit"), "--out", tmp_path / "run", "--listen", "127.0.0.1:0", "--open", "--certificate",
                        certificate, "--key", secret, log=log)
        wait_until(lambda: "listening at" in log.read_text(), log)
        address = re.search(r"https://(\S+)", log.read_text())[1]
        for _ in range(20):
            one_line(evenkeel("status", "--server", address, "--insecure"), NEEDS_TLS)
            one_line(evenkeel(*node_arguments(key, tiny_model, address)), NEEDS_TLS)


def test_a_server_that_ends_every_connection_is_not_said_to_speak_tls():
    with server_that(close_every_connection) as port:
        line = one_line(evenkeel("status", "--server", f"127.0.0.1:{port}", "--insecure"), "the connection ended before the answer")
    assert NEEDS_TLS not in line
