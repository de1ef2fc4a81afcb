"""Arrays between a node and a server over loopback: our node at our coordinator, and at a stock SuperLink where .venv-flwr is.
One array per (layer, A|B), 32 of them, 16 MiB chunks. Seconds per direction, GB/s, the same beside a plain copy over a loopback
socket in the same run, and the most memory each end held.
Usage: .venv-flwr/bin/python bench/wire/transfer.py [--mib 370 730] [--rounds 3]     (needs build/wire_echo)"""
import argparse
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


def plain_copy(size):
    """Seconds for `size` bytes through a loopback socket, from memory to memory."""
    data, place = memoryview(bytes(size)), memoryview(bytearray(size))
    with socket.create_server(("127.0.0.1", 0)) as server:
        def send():
            with socket.create_connection(server.getsockname()) as out:
                out.sendall(data)
        begin = time.perf_counter()
        thread = threading.Thread(target=send)
        thread.start()
        with server.accept()[0] as connection:
            done = 0
            while done < size:
                done += connection.recv_into(place[done:])
        thread.join()
        return time.perf_counter() - begin


def lines(process):
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


def against_our_coordinator(size, rounds, folder):
    with peer.Processes(folder, folder) as processes:
        server = processes.start(peer.ECHO, "serve", "--folder", folder / "federation", "--bytes", size, "--arrays", ARRAYS,
                                 "--messages", rounds, name="serve")
        peer.wait_until("the coordinator is not up", lambda: lines(server))
        peer.keygen(folder / "node.pem")
        node = processes.start(peer.ECHO, "node", "--server", f"127.0.0.1:{lines(server)[0]['port']}", "--key",
                               folder / "node.pem", "--messages", rounds, name="node")
        assert server.wait(600) == 0, server.log.read_text()
        peer.wait_until("the node's lines", lambda: len([r for r in lines(node) if "down_s" in r]) == rounds)
        memory = max(r["peak_memory"] for r in lines(server) if "peak_memory" in r)
        return [r for r in lines(node) if "down_s" in r], memory


def peak_memory_of(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def against_a_superlink(size, rounds, folder):
    link = peer.SuperLink(folder)
    with link.processes:
        peer.keygen(folder / "node.pem")
        node = link.node(folder / "node.pem", "--messages", rounds)
        found = link.begin(nodes=1, rounds=rounds, bytes=size, arrays=ARRAYS, wait=600.0)()
        assert all(reply["exact"] for r in found for reply in r["replies"]), found
        return [r for r in lines(node) if "down_s" in r], peak_memory_of(link.process.pid)


def report(name, size, runs, memory, copy_s):
    for direction in ("down", "up"):
        seconds = [run[f"{direction}_s"] for run in runs]
        median = statistics.median(seconds)
        print(f"{name:12} {size >> 20:5} MiB {direction:4}  {median:6.2f} s ({min(seconds):.2f} to {max(seconds):.2f})  "
              f"{size / median / 1e9:5.2f} GB/s  {median / copy_s:5.1f} x a plain copy")
    print(f"{name:12} {size >> 20:5} MiB memory  node {max(r['peak_memory'] for r in runs) >> 20} MiB, server {memory >> 20} MiB",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, nargs="+", default=[370, 730])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for size in (mib << 20 for mib in options.mib):
        copies = [plain_copy(size) for _ in range(3)]
        print(f"plain copy   {size >> 20:5} MiB        {statistics.median(copies):6.2f} s ({min(copies):.2f} to {max(copies):.2f})", flush=True)
        copy_s = statistics.median(copies)
        for name, against in (("coordinator", against_our_coordinator), ("SuperLink", against_a_superlink)):
            if name == "SuperLink" and not importlib.util.find_spec("flwr"):
                print("SuperLink: not measured, no flwr beside this Python (.venv-flwr)")
                continue
            with tempfile.TemporaryDirectory() as folder:
                runs, memory = against(size, options.rounds, pathlib.Path(folder))
            report(name, size, runs, memory, copy_s)


if __name__ == "__main__":
    main()
