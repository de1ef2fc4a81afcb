"""Runs a method of evenkeel's by driving `evenkeel serve`: what that asks for, this app asks Flower for."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import threading
import time

import flwr
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from evenkeel_flower.lines import VERSION, connect, images_in, record_of_json

APP = pathlib.Path(__file__).resolve().parent.parent
REST = 0.1  # seconds between two looks for replies
GONE = 5  # of Flower's error codes: the node is not available

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = {key.removeprefix("evenkeel."): value for key, value in context.run_config.items()}
    with engine(config) as (lines, process):
        over = Relay(grid, lines, context.run_id).run()
        if over is None:
            lines.close()
            raise RuntimeError(f"evenkeel serve went away{ended(process)}; what it said stands above")
        if over["op"] == "failed":
            raise RuntimeError(over.get("error", "evenkeel serve failed"))
        print(f"evenkeel: the run is in {over.get('folder', config['out'])}", flush=True)


# --- the program ---

@contextlib.contextmanager
def engine(config):
    """A connection to `evenkeel serve --grid`, and its process where this app starts it, which ends with it."""
    if config["socket"]:
        with wait_for(config["socket"], config["wait"]) as lines:
            yield lines, None
        return
    with tempfile.TemporaryDirectory(prefix="evenkeel-") as folder:
        socket = os.path.join(folder, "grid.sock")
        process = subprocess.Popen(command(config, socket), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        log = threading.Thread(target=show_log, args=(process.stdout,), daemon=True)
        log.start()
        try:
            with wait_for(socket, config["wait"], process) as lines:
                yield lines, process
        finally:
            end(process)
            log.join(10)


def show_log(lines):
    """Prints what the program writes, line by line: Flower sends to `flwr run --stream` what this process prints, not
    what its children do. It reads until the end whatever print does, so that the program never waits for a reader."""
    for line in lines:
        with contextlib.suppress(OSError, ValueError):
            print(line.decode(errors="replace").rstrip("\n"), flush=True)


def command(config, socket):
    if not config["config"]:
        raise RuntimeError("evenkeel.config is empty: the run's TOML, an absolute path or one within the app")
    words = [config["program"], "serve", str(APP / config["config"]), "--grid", socket]
    if config["out"]:
        words += ["--out", config["out"]]
    for setting in filter(None, map(str.strip, config["set"].split(";"))):
        words += ["--set", setting]
    return words + (["--resume"] if config["resume"] else [])


def wait_for(socket, seconds, process=None):
    limit = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
            return connect(socket)
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"evenkeel serve did not begin{ended(process)}; what it said stands above")
        if time.monotonic() > limit:
            raise RuntimeError(f"nobody listens on {socket} after {seconds} seconds")
        time.sleep(REST)


def ended(process):
    """How it did, once it has; it leaves by itself when nobody listens to it."""
    if process is None:
        return ""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return f" with exit code {process.wait(10)}"
    return ""


def end(process):
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
        return
    process.terminate()
    try:
        process.wait(60)  # it saves what has arrived
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# --- what it asks ---

class Relay:
    """Answers the program's questions with Flower's grid. Replies are fetched one by one: the next one when the program
    has the last."""

    def __init__(self, grid, lines, run):
        self.grid, self.lines, self.run_id = grid, lines, run
        self.waiting = {}  # node by message id, in the order in which they are looked for
        self.untaken = {}  # the same, of messages that Flower did not take: each arrives as an error
        self.known = None  # the last arrays: a descriptor that pins their inode, their description, the record

    def run(self):
        """The line that ends it; None when the program is gone."""
        while True:
            line, memory = self.lines.receive()
            try:
                if line is None:
                    return None
                if line.get("op") in ("done", "failed"):
                    self.lines.send({"ok": True})
                    return line
                self.lines.send(*self.answer(line, memory))
            finally:
                if memory is not None:
                    os.close(memory)

    def answer(self, line, memory):
        try:
            work = {"hello": self.hello, "nodes": self.nodes, "send": self.send, "poll": self.poll, "forget": self.forget}
            if line.get("op") not in work:
                raise ValueError(f"op is {line.get('op')!r}, allowed: {', '.join(work)}, done, failed")
            answer, content = work[line["op"]](line, memory)
            return {"ok": True, **answer}, content
        except Exception as error:  # whatever Flower throws is told
            return {"ok": False, "error": f"{type(error).__name__}: {error}".replace("\n", " ")}, None

    def hello(self, line, _):
        if line.get("version") != VERSION:
            raise ValueError(f"version {line.get('version')} of these lines, this app speaks {VERSION}")
        return {"version": VERSION, "run": self.run_id, "flwr": flwr.__version__}, None

    def nodes(self, *_):
        nodes = sorted(self.grid.get_nodes(), key=lambda node: node.node_id)
        return {"nodes": [{"id": node.node_id, "name": node.name} for node in nodes]}, None

    def send(self, line, memory):
        more = {"ttl": line["ttl"]} if "ttl" in line else {}
        message = Message(self.content(line, memory), dst_node_id=line["node"], message_type=line["type"],
                          group_id=line.get("group", ""), **more)
        ids = [one for one in self.grid.push_messages([message]) if one]
        sent, among = (ids[0], self.waiting) if ids else (f"untaken {message.object_id}", self.untaken)
        among[sent] = line["node"]
        return {"message": sent}, None

    def content(self, line, memory):
        with images_in(memory, line.get("bytes", 0)) as image:
            return RecordDict({record["name"]: self.record(record, memory, image) for record in line["records"]})

    def record(self, record, memory, image):
        """Arrays in a memfd that came before were cut and hashed then."""
        if memory is None or "arrays" not in record:
            return record_of_json(record, image)
        told = os.fstat(memory).st_ino, record
        if self.known is None or self.known[1] != told:
            made = record_of_json(record, image)
            self.forget_arrays()
            self.known = os.dup(memory), told, made
        return self.known[2]

    def forget_arrays(self):
        if self.known is not None:
            os.close(self.known[0])
        self.known = None

    def poll(self, line, _):
        limit = time.monotonic() + line.get("wait", 0)
        if self.untaken:
            return failure(*self.untaken.popitem(), GONE, "Flower takes no message to it")
        while True:
            for message in list(self.waiting):
                for reply in self.grid.pull_messages([message]):
                    return self.arrival(message, reply)
            if time.monotonic() >= limit:
                return {"arrival": None}, None
            time.sleep(REST)

    def arrival(self, message, reply):
        node = self.waiting.pop(message)
        if reply.has_error():
            return failure(message, node, reply.error.code, reply.error.reason or "")
        return {"arrival": {"message": message, "node": node, "kind": "reply"}}, reply.content

    def forget(self, line, _):
        for among in (self.waiting, self.untaken):
            among.pop(line["message"], None)
        return {}, None


def failure(message, node, code, why):
    return {"arrival": {"message": message, "node": node, "kind": "error", "code": code, "error": why}}, None
