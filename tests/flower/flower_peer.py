"""Runs stock Flower programs in tests: a SuperLink with its own FLWR_HOME and port, runs of the app of echo_app.py,
SuperNodes, and this project's wire_echo.
"""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

import echo_app
import pytest

BIN = pathlib.Path(sys.executable).parent
ECHO = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", "build/evenkeel")).resolve().parent / "wire_echo"
DEADLINE = 600
nightly = pytest.mark.skipif("EVENKEEL_NIGHTLY" not in os.environ, reason="takes a minute or more: .ci/nightly runs it")
slow = pytest.mark.skipif("EVENKEEL_SLOW" not in os.environ, reason="takes long: `make test-slow` runs it")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(home):
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "FLWR_HOME": str(home), "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def wait_until(what, condition, seconds=DEADLINE):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.1)
    raise TimeoutError(what)


class Processes(contextlib.ExitStack):
    """Processes of a test. They end with the test, and the output of each goes to a file."""

    def __init__(self, folder, home):
        super().__init__()
        self.folder, self.home, self.count = folder, home, 0

    def start(self, *command, name):
        self.count += 1
        log = self.folder / f"{self.count}-{name}.log"
        process = subprocess.Popen([str(c) for c in command], stdout=log.open("wb"), stderr=subprocess.STDOUT, cwd=self.folder,
                                   env=environment(self.home), start_new_session=True)
        process.log = log
        self.callback(end, process)
        return process


def end(process):
    """Ends the process and all its descendants, because Flower's programs start each other."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 15)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.wait(DEADLINE)


def make_tls(folder):
    """Creates a certificate authority and a certificate for 127.0.0.1."""
    run = lambda *a: subprocess.run(["openssl", *a], cwd=folder, check=True, capture_output=True)
    run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
        "-days", "2", "-subj", "/CN=test authority")
    run("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "server.key", "-out", "server.csr",
        "-subj", "/CN=127.0.0.1")
    (folder / "san.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem",
        "-days", "2", "-extfile", "san.cnf")
    return {name: folder / name for name in ("ca.pem", "server.pem", "server.key")}


def run_config(config):
    return " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())


class SuperLink:
    def __init__(self, folder, tls=None, port=None, extra=()):
        self.folder, self.tls = folder, tls
        self.home = folder / "flwr-home"
        self.home.mkdir(exist_ok=True)
        self.port = port or free_port()
        self.processes = Processes(folder, self.home)
        connection = f'root-certificates = "{tls["ca.pem"]}"' if tls else "insecure = true"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "test"\n\n[superlink.test]\naddress = "127.0.0.1:{self.port}"\n{connection}\n')
        self.app = folder / "app" if (folder / "app").exists() else echo_app.write(folder)
        self.flags = ["--ssl-ca-certfile", tls["ca.pem"], "--ssl-certfile", tls["server.pem"], "--ssl-keyfile",
                      tls["server.key"], "--enable-supernode-auth"] if tls else ["--insecure"]
        self.extra = extra
        self.start()

    def start(self):
        self.process = self.processes.start(BIN / "flower-superlink", *self.flags, "--host", "127.0.0.1", "--port", self.port,
                                            *self.extra, name="superlink")
        wait_until(f"SuperLink is not up: {self.process.log.read_text()[-2000:]}", self.healthy)

    def healthy(self):
        import ssl
        context = ssl.create_default_context(cafile=str(self.tls["ca.pem"])) if self.tls else None
        try:
            url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/health"
            return urllib.request.urlopen(url, timeout=2, context=context).status == 200
        except OSError:
            return False

    def flwr(self, *words):
        result = subprocess.run([BIN / "flwr", *map(str, words)], cwd=self.app, env=environment(self.home), capture_output=True,
                                text=True, timeout=DEADLINE)
        assert result.returncode == 0, (words, result.stdout[-2000:], result.stderr[-2000:])
        return result.stdout

    def run(self, config, seconds=DEADLINE):
        """Runs the app and returns its output."""
        told = subprocess.run([BIN / "flwr", "run", ".", "test", "--stream", "--run-config", run_config(config)], cwd=self.app,
                              env=environment(self.home), capture_output=True, text=True, timeout=seconds)
        return told.stdout + told.stderr

    def begin(self, **config):
        """Starts a run. Returns a function that waits for the result of its ServerApp."""
        verdict = self.folder / f"verdict-{time.monotonic_ns()}.json"
        out = self.flwr("run", ".", "test", "--run-config", run_config({"verdict": str(verdict), **config}))

        def finish(seconds=DEADLINE):
            wait_until(f"no verdict; {out} {self.process.log.read_text()[-3000:]}", verdict.exists, seconds)
            result = json.loads(verdict.read_text())
            assert "failed" not in result, result["failed"]
            return result["rounds"]
        return finish

    def node_flags(self):
        return ["--server", f"127.0.0.1:{self.port}", *(["--ca", self.tls["ca.pem"]] if self.tls else [])]

    def node(self, key, *more):
        return self.processes.start(ECHO, "node", *self.node_flags(), "--key", key, *more, name="node")

    def supernode(self, *more):
        return supernode(self.processes, self.port, self.tls, *more)


def supernode(processes, port, tls, *more):
    """Starts a stock node at a server of Flower or of this project."""
    security = ["--root-certificates", tls["ca.pem"]] if tls else ["--insecure"]
    return processes.start(BIN / "flower-supernode", *security, "--superlink", f"127.0.0.1:{port}", "--port", free_port(), *more,
                           name="supernode")


def keygen(file, name="site"):
    return subprocess.run([ECHO, "keygen", file, name], check=True, capture_output=True, text=True).stdout
