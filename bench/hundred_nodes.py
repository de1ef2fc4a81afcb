#!/usr/bin/env python3
"""Measures a server with many nodes: memory, processor seconds and threads of `evenkeel serve`, seconds per round.

    bench/hundred_nodes.py [--nodes 100] [--rounds 3] [--methods fedit ub-smoe] [--record bench/records/DATE-hundred-nodes.json]

The nodes are real ones, `evenkeel node` with the built-in model, two rows each and a processor thread each, all on this machine.
Seconds per round are bound by their training here, and depend on other work; memory and processor seconds of the server do
not. Anonymous memory is what the server allocates; the rest of its resident memory is mapped files: base, and uploads in
the page cache. Samples are taken every 50 ms. `load` is the one-minute load before the start.
"""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
FIELDS = {"resident_mib": "VmRSS", "anonymous_mib": "RssAnon", "threads": "Threads"}


def status(pid):
    """Returns the fields of a process in MiB, or nothing when it has ended."""
    with contextlib.suppress(OSError):
        text = pathlib.Path(f"/proc/{pid}/status").read_text()
        found = {name: re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE) for name, field in FIELDS.items()}
        if all(found.values()):
            return {name: int(value[1]) / (1 if name == "threads" else 1024) for name, value in found.items()}
    return None


def processor_seconds(pid):
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_keys(folder, count):
    with (folder / "allow").open("w") as allowed:
        for i in range(count):
            subprocess.run([PROGRAM, "keygen", folder / f"{i}.pem"], check=True, stdout=allowed, stderr=subprocess.DEVNULL)


class Federation(contextlib.ExitStack):
    def __init__(self, folder, nodes, rounds, method):
        super().__init__()
        self.folder, address = folder, f"127.0.0.1:{free_port()}"
        words = {"model.path": "'builtin:tiny-olmoe'", "method.name": method, "clients.count": nodes, "clients.participation": 1.0,
                 "clients.budgets": f"[{', '.join(str(2.0 ** -(i % 4)) for i in range(nodes))}]", "data.limit": 2 * nodes,
                 "train.rounds": rounds, "evaluate.limit": 1, "threads": 1, "data.partition": "{ kind = 'iid' }"}
        self.server = self.start("serve", ROOT / "configs/tiny/train.toml", "--listen", address, "--allow", folder / "allow", "--insecure", "--out",
                                 folder / "run", *[word for key, value in words.items() for word in ("--set", f"{key}={value}")], log="serve")
        self.wait_for_server()
        self.nodes = [self.start("node", "--superlink", address, "--insecure", "--key", folder / f"{i}.pem", "--model", "builtin:tiny-olmoe",
                                 "--threads", "1", "--once", log=f"node-{i}") for i in range(nodes)]

    def start(self, *words, log):
        file = self.enter_context((self.folder / f"{log}.log").open("w"))
        process = subprocess.Popen([PROGRAM, *map(str, words)], stdout=file, stderr=subprocess.STDOUT, env=ENVIRONMENT, cwd=ROOT)
        self.callback(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()
        process.wait()

    def wait_for_server(self):
        while "listening" not in (self.folder / "serve.log").read_text():
            if self.server.poll() is not None:
                sys.exit((self.folder / "serve.log").read_text())
            time.sleep(0.05)


def watch(federation):
    """Samples the server until it ends. Returns peaks, its processor seconds, and the largest anonymous memory of node 0."""
    peaks, seconds, node_mib = dict.fromkeys(FIELDS, 0), 0, 0
    while federation.server.poll() is None:
        now = status(federation.server.pid)
        if now:
            peaks = {name: max(value, now[name]) for name, value in peaks.items()}
        seconds = processor_seconds(federation.server.pid) or seconds
        node_mib = max(node_mib, (status(federation.nodes[0].pid) or {}).get("anonymous_mib", 0))
        time.sleep(0.05)
    return {**{name: round(value) for name, value in peaks.items()}, "processor_s": round(seconds, 1), "node_anonymous_mib": round(node_mib)}


def measure(nodes, rounds, method):
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_keys(folder, nodes)
        begin = time.monotonic()
        with Federation(folder, nodes, rounds, method) as federation:
            found = watch(federation)
            if federation.server.returncode != 0:
                sys.exit((folder / "serve.log").read_text()[-3000:])
            codes = [node.wait(120) for node in federation.nodes]
        records = [json.loads(line) for line in (folder / "run/rounds.jsonl").read_text().splitlines()]
        disk = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
    return {"method": method, "nodes": nodes, "rounds": rounds, "server": found, "upload_mib": round(records[-1]["bytes_up"] / nodes / 2**20, 2),
            "round_s": [round(record["seconds"]["round"], 1) for record in records], "whole_s": round(time.monotonic() - begin, 1),
            "folder_mib": round(disk / 2**20), "nodes_that_ended_well": codes.count(0), "load": round(load, 1)}


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    return re.search(r"model name\s*: (.*)", text)[1] if "model name" in text else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["fedit", "ub-smoe"])
    parser.add_argument("--record", type=pathlib.Path)
    flags = parser.parse_args()
    rows = []
    for method in flags.methods:
        for nodes in flags.nodes:
            rows.append(measure(nodes, flags.rounds, method))
            print(json.dumps(rows[-1]), flush=True)
    record = {"date": time.strftime("%Y-%m-%d"), "machine": {"processor": processor(), "cores": os.cpu_count()}, "many_nodes": rows}
    if flags.record:
        flags.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
