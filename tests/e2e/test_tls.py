"""Tests which certificates a client accepts, the reasons that it gives, and what a node's socket does after a kill.

The server of most tests is a thread of this process: it answers every request with one figure. Its certificates are made
here, so that each has one property. `status --server` and `node` use the same client.
"""

import contextlib
import datetime
import http.server
import os
import signal
import socket
import ssl
import subprocess
import threading

import pytest

from test_federation import Processes, free_port, keygen, run_settings, wait_until
from tiny import evenkeel, one_line, started, tiny_model  # noqa: F401

CA_CONFIG = """[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


class Authority:
    """Signs certificates into a folder."""

    def __init__(self, folder, name="authority"):
        self.folder, self.name = folder, name
        self.pem = folder / f"{name}.pem"
        (folder / "ca.cnf").write_text(CA_CONFIG)
        self.openssl("req", "-x509", *self.new_key(f"{name}.key"), "-out", self.pem, "-days", "2", "-subj", f"/CN={name}")

    def openssl(self, *words):
        subprocess.run(["openssl", *map(str, words)], cwd=self.folder, check=True, capture_output=True)

    @staticmethod
    def new_key(file):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", file]

    def server(self, common_name, names=(), first=-1, last=2):
        """Returns the files (certificate, key) of a server. Days are counted from now."""
        now = datetime.datetime.now(datetime.timezone.utc)
        start, end = (f"{now + datetime.timedelta(days=days):%Y%m%d%H%M%SZ}" for days in (first, last))
        self.openssl("req", *self.new_key("server.key"), "-out", "server.csr", "-subj", f"/CN={common_name}")
        (self.folder / "index.txt").write_text("")
        (self.folder / "names.cnf").write_text("basicConstraints=CA:FALSE\n" + (f"subjectAltName={','.join(names)}\n" if names else ""))
        self.openssl("ca", "-batch", "-notext", "-config", "ca.cnf", "-cert", self.pem, "-keyfile", f"{self.name}.key", "-in", "server.csr",
                     "-out", "server.pem", "-extfile", "names.cnf", "-startdate", start, "-enddate", end)
        return self.folder / "server.pem", self.folder / "server.key"


class Figures(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"figure 1\n")

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):  # a client that refuses the certificate ends the connection
        pass


@contextlib.contextmanager
def serving(certificate=None, key=None):
    """Yields the port of a server, with TLS if a certificate is given."""
    server = Server(("127.0.0.1", 0), Figures)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def status(host, port, *flags):
    return evenkeel("status", "--server", f"{host}:{port}", *flags, timeout=600)


@pytest.mark.parametrize("host, common_name, names, accepted", [
    ("localhost", "localhost", (), True), ("localhost", "localhost", ["DNS:elsewhere"], False),
    ("localhost", "elsewhere", ["DNS:localhost"], True), ("localhost", "elsewhere", (), False),
    ("localhost", "elsewhere", ["DNS:elsewhere", "DNS:localhost"], True), ("localhost", "localhost", ["IP:127.0.0.1"], False),
    ("localhost", "localhost", ["email:a@localhost"], False), ("localhost", "localhost", ["DNS:localhost.org"], False),
    ("127.0.0.1", "elsewhere", ["IP:127.0.0.1"], True), ("127.0.0.1", "127.0.0.1", ["IP:127.0.0.2"], False),
    ("127.0.0.1", "127.0.0.1", ["DNS:127.0.0.1"], False), ("127.0.0.1", "127.0.0.1", ["DNS:elsewhere"], False),
    ("127.0.0.1", "elsewhere", ["DNS:localhost"], False)])
def test_a_certificate_must_be_for_the_address(host, common_name, names, accepted, tmp_path):
    authority = Authority(tmp_path)
    with serving(*authority.server(common_name, names)) as port:
        done = status(host, port, "--ca", authority.pem)
    if accepted:
        assert (done.returncode, done.stdout) == (0, "figure 1\n"), done.stderr
    else:
        one_line(done, "the server's certificate is not for this address")


@pytest.mark.parametrize("first, last, says", [(-9, -1, "has expired"), (1, 9, "is not valid yet")])
def test_a_certificate_outside_its_dates_is_refused_and_said_so(first, last, says, tmp_path):
    authority = Authority(tmp_path)
    with serving(*authority.server("localhost", ["DNS:localhost"], first, last)) as port:
        said = one_line(status("localhost", port, "--ca", authority.pem), "the server's certificate", says)
    assert "not of the given authority" not in said and "address" not in said.split("certificate", 1)[1]


def test_another_authoritys_certificate_is_refused(tmp_path):
    with serving(*Authority(tmp_path).server("localhost", ["DNS:localhost"])) as port:
        for other in (Authority(tmp_path, "other"), Authority(tmp_path)):  # the second has the same name
            one_line(status("localhost", port, "--ca", other.pem), "not of the given authority")


def test_a_client_without_tls_is_told_that_the_server_may_have_it(tmp_path):
    with serving(*Authority(tmp_path).server("localhost", ["DNS:localhost"])) as port:
        one_line(status("localhost", port, "--insecure"), "no figures: the server speaks TLS: give --ca FILE")
    with serving() as port:
        assert status("localhost", port, "--insecure").stdout == "figure 1\n"
        one_line(status("localhost", port, "--ca", Authority(tmp_path).pem), "no TLS connection", "without TLS")


@pytest.mark.parametrize("text", ["", "no certificate\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "key"])
def test_a_file_without_a_certificate_is_no_authority(text, tmp_path, tiny_model):  # noqa: F811
    (key,) = keygen(tmp_path, 1)
    file = key if text == "key" else tmp_path / "ca.pem"
    if text != "key":
        file.write_text(text)
    node = ["node", "--superlink", "127.0.0.1:9", "--ca", file, "--key", key, "--model", tiny_model]
    for words in (node, ["status", "--server", "127.0.0.1:9", "--ca", file]):
        one_line(evenkeel(*words, timeout=600), "[config]", file, "--ca", "holds no certificate in PEM")


def test_files_of_tls_that_cannot_be_read_are_named_with_the_reason(tmp_path, tiny_model):  # noqa: F811
    certificate, key = Authority(tmp_path).server("localhost", ["DNS:localhost"])
    missing, locked, traditional = (tmp_path / name for name in ("missing.pem", "locked.key", "traditional.key"))
    for flags, file in ((["pkey"], locked), (["ec"], traditional)):  # PKCS#8, and a PEM with its own header
        subprocess.run(["openssl", *flags, "-in", key, "-aes128", "-passout", "pass:secret", "-out", file], check=True, capture_output=True)
    for files, says in (((missing, key), [missing, "No such file or directory"]), ((certificate, missing), [missing, "No such file or directory"]),
                        ((key, key), [key, "no certificate in PEM"]), ((certificate, locked), [locked, "a passphrase"]),
                        ((certificate, traditional), [traditional, "a passphrase"]),
                        ((certificate, certificate), ["no private key in PEM that belongs to"])):
        done = started("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit"), "--out", tmp_path / "run", "--listen", "127.0.0.1:0", "--open",
                       "--certificate", files[0], "--key", files[1], start_new_session=True)  # without a terminal
        one_line(done, *says)
        assert "Enter" not in done.stderr and not (tmp_path / "run").exists()


def test_a_node_refuses_a_server_of_another_name_and_the_server_warns_of_an_expired_certificate(tmp_path, tiny_model):  # noqa: F811
    authority, (key,), log, said = Authority(tmp_path), keygen(tmp_path, 1), tmp_path / "serve.log", tmp_path / "node.log"
    for dates, reason in (((-1, 2), "is not for this address"), ((-9, -1), "has expired")):
        names = ["DNS:elsewhere" if dates == (-1, 2) else "DNS:localhost"]
        certificate, secret = authority.server("localhost", names, *dates)
        address = f"localhost:{free_port()}"
        with Processes() as processes:
            processes.start("serve", "configs/tiny/train.toml", *run_settings(tiny_model, "fedit"), "--out", tmp_path / f"run-{dates[1]}", "--listen", address,
                            "--open", "--certificate", certificate, "--key", secret, log=log)
            wait_until(lambda: "listening at" in log.read_text(), log)
            processes.start("node", "--superlink", address, "--ca", authority.pem, "--key", key, "--model", tiny_model, log=said)
            wait_until(lambda text=reason: text in said.read_text() or "this node will send" in said.read_text(), said)
        assert reason in said.read_text() and "this node will send" not in said.read_text()
        assert (f"the certificate {certificate} has expired: nodes will refuse it" in log.read_text()) == (reason == "has expired")
        log.unlink(), said.unlink()


# --- the socket of a node ---

def test_a_node_takes_the_socket_of_a_killed_node_and_nothing_else(tmp_path, tiny_model):  # noqa: F811
    path, log = tmp_path / "n.sock", tmp_path / "node.log"
    words = ["node", "--socket", path, "--model", tiny_model]

    def listens():
        with socket.socket(socket.AF_UNIX) as probe:
            return path.exists() and probe.connect_ex(str(path)) == 0

    with Processes() as processes:
        first = processes.start(*words, log=log)
        wait_until(listens, log)
        one_line(started(*words), "is in use by process")  # of a living node
        one_line(started(*words, "--memory", tmp_path / "other"), path, "Address already in use")
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert path.is_socket() and not listens()
        second = processes.start(*words, log=log)
        wait_until(listens, log)
        second.send_signal(signal.SIGTERM)
        second.wait()
    assert not path.exists()
    path.write_text("mine")
    assert evenkeel(*words).returncode == 1 and path.read_text() == "mine"
    path.unlink()
    os.symlink(tmp_path / "elsewhere", path)
    assert evenkeel(*words).returncode == 1 and path.is_symlink()
