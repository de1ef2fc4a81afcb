"""Measures the transfer of arrays between nodes and a server over loopback: 32 arrays per message, in chunks of 16 MiB.

    pair        one node at our coordinator, and at a stock SuperLink if .venv-flwr exists: seconds per direction, GB/s
    many        1 to 32 nodes at our coordinator, 8 MiB each way
    registered  50 active nodes of 1,000 that are registered, send heartbeats and poll, compared with 50 of 50
    large       six nodes with 3.2 GB each, in mapped files; mainly for memory

Every run also measures the same bytes through a plain loopback socket and through SHA-256 (each side hashes every byte
once), and the peak memory of each side with and without pages of files.
Usage: .venv-flwr/bin/python bench/wire/transfer.py [pair many registered large] [--rounds 3]      (needs build/wire_echo)
"""
import argparse
import contextlib
import hashlib
import importlib.util
import json
import pathlib
import socket
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests" / "flower"))
import flower_peer as peer

ARRAYS = 32
PATIENCE = 3000


def plain_copy(size, times=1):
    """Returns the seconds for `size` bytes, sent several times through a loopback socket from memory to memory."""
    data, place = memoryview(bytes(size)), memoryview(bytearray(size))
    with socket.create_server(("127.0.0.1", 0)) as server:
        def send():
            with socket.create_connection(server.getsockname()) as out:
                for _ in range(times):
                    out.sendall(data)
        begin = time.perf_counter()
        thread = threading.Thread(target=send)
        thread.start()
        with server.accept()[0] as connection:
            for _ in range(times):
                done = 0
                while done < size:
                    done += connection.recv_into(place[done:])
        thread.join()
        return time.perf_counter() - begin


def hash_rate():
    """Returns the GB/s of SHA-256 on one thread."""
    data = bytes(64 << 20)
    begin = time.perf_counter()
    hashlib.sha256(data).digest()
    return len(data) / (time.perf_counter() - begin) / 1e9


def lines(process):
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


class Memory:
    """Samples the peak memory of processes: all pages, and those that belong to no file."""

    def __init__(self, processes):
        self.pids = [process.pid for process in processes]
        self.all, self.own, self.done = [0] * len(self.pids), [0] * len(self.pids), threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.done.wait(0.02):
            for i, pid in enumerate(self.pids):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    text = pathlib.Path(f"/proc/{pid}/status").read_text()
                    kib = lambda name: int(text.split(name + ":")[1].split()[0])
                    self.all[i] = max(self.all[i], kib("VmHWM"))
                    self.own[i] = max(self.own[i], kib("RssAnon"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def text(self):
        names = ["server"] + [f"node {i}" for i in range(1, len(self.pids))]
        most = max(range(1, len(self.pids)), key=lambda i: self.all[i], default=None)
        return ", ".join(f"{names[i]} {self.all[i] >> 10} MiB ({self.own[i] >> 10} of its own)"
                         for i in ([0] if most is None else [0, most]))


def serve(processes, folder, *more):
    server = processes.start(peer.ECHO, "serve", "--folder", folder / "federation", *more, name="serve")
    peer.wait_until("the coordinator is not up", lambda: lines(server), 120)
    return server, f"127.0.0.1:{lines(server)[0]['port']}"


def replies(server):
    return [line for line in lines(server) if "seconds" in line]


def with_coordinator(folder, size, nodes, rounds, *more):
    """Returns (lines of the nodes, seconds of each round, memory)."""
    with peer.Processes(folder, folder) as processes:
        server, address = serve(processes, folder, "--bytes", size, "--arrays", ARRAYS, "--messages", rounds, "--nodes", nodes, *more)
        started = []
        for i in range(nodes):
            peer.keygen(folder / f"{i}.pem")
            started.append(processes.start(peer.ECHO, "node", "--server", address, "--key", folder / f"{i}.pem", "--messages",
                                           rounds, *more, name=f"node{i}"))
        with Memory([server, *started]) as memory:
            assert server.wait(PATIENCE) == 0, server.log.read_text()
        taken = [line for node in started for line in lines(node) if "down_s" in line]
        return taken, seconds_of_rounds(server), memory


def seconds_of_rounds(server):
    last = {}
    for reply in replies(server):
        assert reply["exact"], reply
        last[reply["round"]] = max(last.get(reply["round"], 0), reply["seconds"])
    return list(last.values())


def with_superlink(folder, size, rounds):
    link = peer.SuperLink(folder)
    with link.processes:
        peer.keygen(folder / "node.pem")
        node = link.node(folder / "node.pem", "--messages", rounds)
        with Memory([link.process, node]) as memory:
            found = link.begin(nodes=1, rounds=rounds, bytes=size, arrays=ARRAYS, wait=float(PATIENCE))(PATIENCE)
        assert all(reply["exact"] for r in found for reply in r["replies"]), found
        return [line for line in lines(node) if "down_s" in line], memory


def report_directions(name, size, taken, memory, copy_s, rate):
    for direction in ("down", "up"):
        seconds = [line[f"{direction}_s"] for line in taken]
        median = statistics.median(seconds)
        print(f"{name:12} {size >> 20:5} MiB {direction:4}  {median:6.2f} s ({min(seconds):.2f} to {max(seconds):.2f})  "
              f"{size / median / 1e9:5.2f} GB/s  {median / copy_s:5.1f} x a plain copy, "
              f"{median / (size / rate / 1e9):4.1f} x its SHA-256")
    print(f"{name:12} {size >> 20:5} MiB memory  {memory.text()}", flush=True)


def pair(options, folder):
    for size in (mib << 20 for mib in options.mib):
        copies, rate = [plain_copy(size) for _ in range(3)], hash_rate()
        copy_s = statistics.median(copies)
        print(f"plain copy   {size >> 20:5} MiB       {copy_s:6.2f} s ({min(copies):.2f} to {max(copies):.2f}); SHA-256 {rate:.2f} GB/s",
              flush=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            taken, _, memory = with_coordinator(pathlib.Path(place), size, 1, options.rounds)
        report_directions("coordinator", size, taken, memory, copy_s, rate)
        if not importlib.util.find_spec("flwr"):
            print("SuperLink: not measured, no flwr beside this Python (.venv-flwr)")
            continue
        with tempfile.TemporaryDirectory(dir=folder) as place:
            taken, memory = with_superlink(pathlib.Path(place), size, options.rounds)
        report_directions("SuperLink", size, taken, memory, copy_s, rate)


def report_rounds(name, size, nodes, seconds, memory):
    copy_s, rate = plain_copy(size, 2 * nodes), hash_rate()
    median = statistics.median(seconds)
    print(f"{name}: {nodes} x {size / 2**20:.0f} MiB each way in {median:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
          f"{2 * nodes * size / median / 1e9:.2f} GB/s, {median / copy_s:.1f} x a plain copy, "
          f"{median / (2 * nodes * size / rate / 1e9):.1f} x SHA-256 of it on one thread; {memory.text()}", flush=True)


def many(options, folder):
    for nodes in (1, 2, 4, 8, 16, 32):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            _, seconds, memory = with_coordinator(pathlib.Path(place), 8 << 20, nodes, options.rounds)
        report_rounds("many", 8 << 20, nodes, seconds, memory)


def registered(options, folder):
    size, active = 1 << 20, 50
    for nodes in (active, 1000):
        with tempfile.TemporaryDirectory(dir=folder) as place, peer.Processes(pathlib.Path(place), pathlib.Path(place)) as processes:
            place = pathlib.Path(place)
            server, address = serve(processes, place, "--bytes", size, "--arrays", ARRAYS, "--messages", options.rounds, "--nodes",
                                    nodes, "--active", active)
            crowd = processes.start(peer.ECHO, "node", "--server", address, "--key", place / "node.pem", "--count", nodes,
                                    "--messages", options.rounds, name="crowd")
            with Memory([server, crowd]) as memory:
                assert server.wait(PATIENCE) == 0, server.log.read_text()[-2000:] + crowd.log.read_text()[-2000:]
            report_rounds(f"registered {nodes}", size, active, seconds_of_rounds(server), memory)


def large(options, folder):
    size = 3_200_000_000
    with tempfile.TemporaryDirectory(dir=folder) as place:
        spool = pathlib.Path(place) / "spool"
        spool.mkdir()
        _, seconds, memory = with_coordinator(pathlib.Path(place), size, 6, 1, "--spool", spool)
    report_rounds("large", size, 6, seconds, memory)


def main():
    parts = {"pair": pair, "many": many, "registered": registered, "large": large}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], default=["pair"])
    parser.add_argument("--mib", type=int, nargs="+", default=[370, 730], help="of a pair")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="for what `large` keeps in files: 43 GB")
    options = parser.parse_args()
    for name in options.parts:
        parts[name](options, options.folder)


if __name__ == "__main__":
    main()
