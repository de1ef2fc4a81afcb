"""Test doubles for the two programs that the Flower app talks to with its line protocol (docs/json-lines.md): an engine
that sends arrays of every kind to every node and checks the replies, and a node that changes every byte. Run as a
program, it is the engine: `app_doubles.py serve CONFIG --grid SOCKET --out DIR`, where CONFIG is a JSON file.
"""

import argparse
import json
import math
import os
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, os.environ.get("EVENKEEL_APP", str(pathlib.Path(__file__).resolve().parents[2] / "flower")))

import numpy as np  # noqa: E402
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict  # noqa: E402

from evenkeel_flower.lines import VERSION, Lines, Refused  # noqa: E402

CHANGE = bytes(value ^ 0x5A for value in range(256))
VALUES = {"version": 1, "header": '{"größe": "x"}', "head": b"\x00\xff\n", "rate": 0.5, "whole": 2.0, "large": 1e300, "flag": True,
          "least": -(2**62), "ints": [1, -2], "floats": [0.5, 1.0], "texts": ["a", "b\n"], "flags": [True, False], "raws": [b"\x01", b""],
          "not a number": math.nan, "endless": -math.inf}


def changed(image):
    """Returns a .npy image with every byte after its header changed."""
    head = 10 + int.from_bytes(image[8:10], "little")
    return image[:head] + image[head:].translate(CHANGE)


def zoo(seed, size=40_000):
    rng = np.random.default_rng(seed)
    arrays = {"special": np.array([[-0.0, np.inf, 1e-42], [np.nan, 1.0, -1e30]], dtype=np.float32),
              "bf16": rng.integers(0, 2**16, (5, 7), dtype=np.uint16), "counts": rng.integers(-2**62, 2**62, (3,)),
              "flags": np.array([True, False, True]), "scalar": np.array(2.5), "empty": np.zeros((0, 4), dtype=np.float32),
              "fortran": np.asfortranarray(rng.normal(size=(3, 4, 5)).astype(np.float32)), "zeros.a": np.zeros((7, 3)),
              "zeros.b": np.zeros((7, 3)), 'größe "q"': rng.normal(size=(2, 3)).astype(np.float16), "long": rng.normal(size=size)}
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def content(number, **more):
    return RecordDict({"evenkeel": ConfigRecord({**VALUES, **more}), "arrays": zoo(number)})


def same_values(record):
    """Compares values, with nan equal to itself."""
    return repr(dict(record.items())) == repr(VALUES)


# --- the node ---

class NodeDouble:
    """A resident node that changes arrays, and counts its replies and the confirmed ones."""

    def __init__(self, path):
        self.answered, self.taken, self.asked = 0, 0, []
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.bind(str(path))
        os.chmod(path, 0o600)
        self.server.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with Lines(connection) as app:
                self.hear(app)

    def hear(self, app):
        while (said := app.receive_content())[0] is not None:
            line, records = said
            if line["op"] == "taken":
                self.taken += 1
                continue
            self.asked.append(line)
            if "refuse" in records["evenkeel"]:
                app.send({"ok": False, "code": 6, "error": records["evenkeel"]["refuse"]})
                continue
            arrays = ArrayRecord({name: Array(entry.dtype, entry.shape, entry.stype, changed(entry.data))
                                  for name, entry in records["arrays"].items()})
            self.answered += 1
            app.send({"ok": True}, RecordDict({"evenkeel": records["evenkeel"], "arrays": arrays,
                                               "metrics": MetricRecord({"num-examples": 3, "loss": 0.5})}))

    def close(self):
        self.server.shutdown(socket.SHUT_RDWR)
        self.server.close()


# --- the engine ---

def listening(path):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    os.chmod(path, 0o600)
    server.listen()
    with server:
        return Lines(server.accept()[0])


def one_round(app, number, kind, nodes):
    sent = content(number)
    waiting = {app.ask({"op": "send", "node": node, "type": kind, "group": str(number), "ttl": 600.0}, sent)[0]["message"]
               for node in nodes}
    found = []
    end = time.monotonic() + 600
    while waiting and time.monotonic() < end:
        answer, back = app.ask({"op": "poll", "wait": 0.5})
        if not (arrival := answer["arrival"]):
            continue
        waiting.remove(arrival["message"])
        if arrival["kind"] == "error":
            found.append({"error": arrival["error"], "code": arrival["code"]})
            continue
        exact = [(n, a.dtype, tuple(a.shape), changed(a.data)) for n, a in back["arrays"].items()] == [
            (n, a.dtype, tuple(a.shape), a.data) for n, a in sent["arrays"].items()]
        found.append({"exact": exact, "values": same_values(back["evenkeel"]), "metrics": dict(back["metrics"].items())})
    return {"round": number, "type": kind, "replies": found, "missing": len(waiting)}


def play(app, wanted, out):
    hello, _ = app.ask({"op": "hello", "version": VERSION, "program": "double"})
    end = time.monotonic() + 600
    while len(nodes := app.ask({"op": "nodes"})[0]["nodes"]) < wanted["nodes"] and time.monotonic() < end:
        time.sleep(0.1)
    rounds = [one_round(app, number, kind, [node["id"] for node in nodes])
              for number, kind in enumerate(wanted["types"], 1)]
    out.mkdir(parents=True)
    (out / "verdict.json").write_text(json.dumps({"hello": hello, "nodes": nodes, "rounds": rounds}))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--grid")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--resume", action="store_true")
    words = parser.parse_args()
    wanted = json.loads(words.config.read_text())
    if wanted.get("exit"):
        sys.exit(wanted["exit"])
    with listening(words.grid) as app:
        if wanted.get("exit later"):
            app.ask({"op": "nodes"})
            sys.exit(wanted["exit later"])
        try:
            play(app, wanted, words.out)
        except Refused as refused:
            app.ask({"op": "failed", "error": str(refused)})
            sys.exit(1)
        app.ask({"op": "done", "folder": str(words.out)})


if __name__ == "__main__":
    main()
