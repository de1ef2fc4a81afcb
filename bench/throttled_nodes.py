#!/usr/bin/env python3
"""Compares simulated round times with four nodes of limited speed: network namespaces with limited links, and limited
shares of a processor.

    bench/throttled_nodes.py [--rounds 4] [--folder FOLDER]        (as root: ip, tc, the cpu controller of cgroup 1 or 2)

The profile of each node is measured in its namespace and share (`doctor --client-profile`). Then the config with these
profiles is served to the four nodes, and bench/check_times.py compares each client's training and each round. The nodes
run on one hardware thread and the server on another, because a share is worth less next to busy neighbours. The exit
code is 1 if a prediction differs by more than 15 %.
"""
import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
CGROUP = next((p for p in map(pathlib.Path, ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None)
# Share of a processor, Mbit/s down and up, budget.
NODES = [(0.34, 40, 20, 1.0), (0.24, 20, 8, 0.5), (0.16, 8, 4, 0.25), (0.10, 4, 2, 0.125)]


def run(*words, **options):
    return subprocess.run([str(w) for w in words], check=True, text=True, capture_output=True, **options).stdout


def end(process):
    process.kill()
    process.wait()


class Host:
    """A namespace on a bridge with limited links, and a share of processor 0."""

    def __init__(self, stack, bridge, number, share=None, down_mbit=None, up_mbit=None):
        self.stack = stack
        self.name, self.address, self.cgroup = f"{bridge}n{number}", f"10.78.0.{number + 1}", None
        run("ip", "netns", "add", self.name)
        stack.callback(run, "ip", "netns", "del", self.name)
        run("ip", "link", "add", f"{bridge}v{number}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", f"{bridge}v{number}", "master", bridge, "up")
        inside = ("ip", "-n", self.name)
        run(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*inside, "link", "set", "eth0", "up")
        run(*inside, "link", "set", "lo", "up")
        if share is None:
            return
        limit = lambda mbit: ("root", "tbf", "rate", f"{mbit}mbit", "burst", "32kb", "latency", "2s")
        run("ip", "netns", "exec", self.name, "tc", "qdisc", "add", "dev", "eth0", *limit(up_mbit))
        run("tc", "qdisc", "add", "dev", f"{bridge}v{number}", *limit(down_mbit))
        self.cgroup = CGROUP / self.name
        self.cgroup.mkdir()
        stack.callback(self.cgroup.rmdir)
        if (self.cgroup / "cpu.max").exists():
            (self.cgroup / "cpu.max").write_text(f"{int(share * 100_000)} 100000")
        else:
            (self.cgroup / "cpu.cfs_quota_us").write_text(str(int(share * 100_000)))

    def start(self, *words, log, processor):
        into = f"echo $$ > {self.cgroup}/cgroup.procs; " if self.cgroup else ""
        command = f'{into}exec taskset -c {processor} ip netns exec {self.name} "$@"'
        process = subprocess.Popen(["sh", "-c", command, "sh", PROGRAM, *map(str, words)], cwd=ROOT, stdout=open(log, "w"),
                                   stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})
        self.stack.callback(end, process)
        return process


def finish(process, log, seconds=600):
    if process.wait(seconds) != 0:
        sys.exit(f"exit {process.returncode}: {pathlib.Path(log).read_text()[-2000:]}")


def wait_for(line, log, seconds=60):
    end_of_patience = time.monotonic() + seconds
    while line not in pathlib.Path(log).read_text():
        if time.monotonic() > end_of_patience:
            sys.exit(f"no '{line}' within {seconds} s: {pathlib.Path(log).read_text()[-2000:]}")
        time.sleep(0.05)


@contextlib.contextmanager
def hosts():
    bridge = f"ekb{os.getpid() % 10000}"
    with contextlib.ExitStack() as stack:
        run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(run, "ip", "link", "del", bridge)
        run("ip", "link", "set", bridge, "up")
        yield [Host(stack, bridge, 0)] + [Host(stack, bridge, i + 1, *node[:3]) for i, node in enumerate(NODES)]


def write_config(folder, rounds):
    run(PROGRAM, "pretrain", "configs/tiny/pretrain.toml", "--out", folder / "model", cwd=ROOT)
    text = (ROOT / "configs/tiny/train.toml").read_text()
    for old, new in (('path = "models/tiny"', f'path = "{folder / "model"}"'), ("rank = 3", "rank = 48"), ("limit = 90", "limit = 240"),
                     ("count = 5", f"count = {len(NODES)}"), ("participation = 0.6", "participation = 1.0"),
                     ("budgets = [0.125, 0.25, 0.5, 1.0, 0.25]", f"budgets = {[node[3] for node in NODES]}"),
                     ("rounds = 3", f"rounds = {rounds}"), ("local_epochs = 0.7", "local_epochs = 1.0"), ("limit = 3", "limit = 1"),
                     ('{ kind = "dirichlet", alpha = 0.5 }', '{ kind = "iid" }'), ('name = "ub-smoe"', 'name = "fedit"')):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "run.toml").write_text(text)


def measure(folder, nodes):
    """Measures the profiles of all nodes at the same time, as they will train. Returns them as TOML."""
    started = []
    for i, node in enumerate(nodes):
        log = folder / f"doctor-{i}.log"
        started.append((node.start("doctor", "--config", folder / "run.toml", "--client-profile", folder / f"site-{i}.toml", log=log,
                                   processor=0), log))
    for process, log in started:
        finish(process, log)
    devices = ""
    for i, (_, down, up, _) in enumerate(NODES):
        device = (folder / f"site-{i}.toml").read_text()
        print(next(line for line in device.splitlines() if line.startswith("tokens_per_second")), flush=True)
        for key, value in (("down_mbit", down), ("up_mbit", up)):
            device, count = re.subn(f"^{key} = [^ #]*", f"{key} = {value}", device, flags=re.MULTILINE)
            assert count == 1, (key, device)
        devices += device
    return devices


def serve(folder, server, nodes):
    keys = [folder / f"node-{i}.pem" for i in range(len(nodes))]
    (folder / "keys.txt").write_text("".join(run(PROGRAM, "keygen", key) for key in keys))
    words = ["serve", folder / "timed.toml", "--set", f"clients.profiles={[f'site-{i}' for i in range(len(nodes))]}", "--out",
             folder / "run", "--listen", f"{server.address}:8000", "--allow", folder / "keys.txt", "--insecure"]
    process = server.start(*words, log=folder / "serve.log", processor=1)
    time.sleep(1)
    started = []
    for i, node in enumerate(nodes):
        words = ("node", "--superlink", f"{server.address}:8000", "--insecure", "--key", keys[i], "--model", folder / "model")
        started.append(node.start(*words, "--poll", 0.05, "--once", log=folder / f"node-{i}.log", processor=0))
        # Nodes become clients in the order of joining, so each must get its own profile
        wait_for(f"node-{i} is client {i}:", folder / "serve.log")
    finish(process, folder / "serve.log")
    for i, node in enumerate(started):
        finish(node, folder / f"node-{i}.log")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--folder", help="to keep everything in")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, options.rounds)
        server, *nodes = stack.enter_context(hosts())
        (folder / "timed.toml").write_text((folder / "run.toml").read_text() + measure(folder, nodes))
        serve(folder, server, nodes)
        return subprocess.call([sys.executable, ROOT / "bench/check_times.py", folder / "run", "--together", "--skip", "1"])


if __name__ == "__main__":
    sys.exit(main())
