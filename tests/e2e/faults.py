"""A federation of three hospitals with TLS, own rows and unequal budgets, and a proxy that damages what it carries."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from test_federation import DEADLINE, Processes, free_port
from test_tls import Authority
from tiny import lines, succeed, without_seconds

PIECE = 1 << 14  # bytes that the proxy passes on at once
ADAPTER = "adapter/adapter_model.safetensors"
HOSPITALS = ("north", "harbour", "hill")
CONFIG = """name = "three"
seed = 3
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[data]
task = "files"
files = {{ score = "choice", options = ["cardiology", "surgery", "neurology"] }}
[[clients.client]]
name = "north"
data = "rows"
budget = 1.0
[[clients.client]]
name = "harbour"
data = "rows"
test = "test"
budget = 0.5
[[clients.client]]
name = "hill"
data = "rows"
budget = 0.125
[train]
rounds = 4
local_epochs = 2.0
batch_size = 4
accumulation = 1
optimizer = {{ lr = 2e-3 }}
[evaluate]
every = 1
budgets = [1.0]
as_exported = false
max_new_tokens = 8
"""


def write_rows(file, name, count):
    draw = random.Random(f"{name} {count}")
    file.write_text("".join(json.dumps({"prompt": f"Patient {name} {i}: complaint {draw.randint(1, 99)}. Which ward?",
                                        "completion": draw.choice(["cardiology", "surgery", "neurology"])}) + "\n" for i in range(count)))


class Hospitals(Processes):
    """The federation in a folder. `server` and `nodes` hold the newest process of each."""

    def __init__(self, folder, model, tls=True):
        super().__init__()
        self.folder, self.model, self.tls, self.port = folder, model, tls, free_port()
        self.run, self.log = folder / "run", folder / "serve.log"
        self.at, self.nodes, self.server = self.port, {}, None
        (folder / "three.toml").write_text(CONFIG.format(model=model))
        keys = [succeed("keygen", folder / f"{name}.pem", "--comment", name).stdout for name in HOSPITALS]
        (folder / "allow").write_text("".join(keys))
        for name, count in (("north", 30), ("harbour", 12), ("harbour-test", 12), ("hill", 5)):
            write_rows(folder / f"{name}.jsonl", name, count)
        self.authority = Authority(folder)
        self.certificate = self.authority.server("localhost", ["DNS:localhost"])

    def serve(self, *more, inside=(), out=None):
        network = ["--certificate", self.certificate[0], "--key", self.certificate[1]] if self.tls else ["--insecure"]
        self.server = self.start("serve", self.folder / "three.toml", "--listen", f"127.0.0.1:{self.port}", "--allow", self.folder / "allow",
                                 "--out", out or self.run, *network, *more, log=self.log, inside=inside)
        return self.server

    def node(self, name, *more, rows=None, model=None, inside=(), **flags):
        """Starts a hospital's node. A flag that is given here takes the place of the usual one."""
        rows = rows or self.folder / f"{name}.jsonl"
        words = {"--superlink": f"localhost:{self.at}", "--key": self.folder / f"{name}.pem", "--model": model or self.model, "--data": rows,
                 "--poll": 0.05, **({"--ca": self.authority.pem} if self.tls else {}),
                 **({"--test": self.folder / "harbour-test.jsonl"} if name == "harbour" else {}),
                 **{f"--{flag}": value for flag, value in flags.items()}}
        flat = [word for flag, value in words.items() if value is not None for word in (flag, value)]
        self.nodes[name] = self.start("node", *flat, *([] if self.tls else ["--insecure"]), "--once", *more, log=self.folder / f"{name}.log",
                                      inside=inside)
        return self.nodes[name]

    def all_nodes(self, **more):
        for name in HOSPITALS:
            self.node(name, **more)

    def said(self, name=None):
        file = self.folder / f"{name}.log" if name else self.log
        return file.read_text() if file.exists() else ""

    def everything(self):
        return "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in sorted(self.folder.glob("*.log")))

    def rounds(self):
        file = self.run / "rounds.jsonl"
        with contextlib.suppress(json.JSONDecodeError):
            return len(lines(file)) if file.exists() else 0
        return 0

    def until(self, condition, seconds=DEADLINE):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.everything()
            time.sleep(0.01)

    def until_round(self, number):
        self.until(lambda: self.rounds() >= number or self.server.poll() is not None)

    def kill(self, process, number=signal.SIGKILL):
        process.send_signal(number)
        process.wait(DEADLINE)
        return process.returncode

    def has_failed_node(self):
        return any(node.poll() not in (None, 0) for node in self.nodes.values())

    def ends_well(self, seconds=DEADLINE):
        self.until(lambda: self.server.poll() is not None or self.has_failed_node(), seconds)
        if self.server.poll() is None and self.has_failed_node():  # a run that waits for a node which is gone takes long
            raise AssertionError(self.everything())
        assert self.server.returncode == 0, self.everything()
        for name, node in self.nodes.items():
            self.until(lambda node=node: node.poll() is not None, 120)
            assert node.returncode == 0, f"{name}\n{self.everything()}"


def result(run):
    """What an undisturbed run and one with faults have in common: every bit of the adapter and of the records but times."""
    return {"adapter": (run / ADAPTER).read_bytes(), **{name: without_seconds(lines(run / name)) for name in ("rounds.jsonl", "evaluations.jsonl")}}


class Proxy:
    """Carries connections from `port` to a server on this machine. `fault(piece, draw)` returns what to pass on, in its place, or
    None to end the connection. It draws from its seed only, one stream per connection and direction."""

    def __init__(self, target, fault, seed=7):
        self.target, self.fault, self.seed, self.count, self.hole = target, fault, seed, 0, threading.Event()
        self.faults = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            except OSError:
                if self.listener.fileno() < 0:
                    return
                client.close()
                continue
            self.count += 1
            for one, other, way in ((client, server, "up"), (server, client, "down")):
                one.settimeout(None)
                threading.Thread(target=self.carry, args=(one, other, random.Random(f"{self.seed} {self.count} {way}")), daemon=True).start()

    def carry(self, one, other, draw):
        with contextlib.suppress(OSError):
            while piece := one.recv(PIECE):
                while self.hole.is_set():
                    time.sleep(0.05)
                passed = self.fault(piece, draw)
                if passed != piece:
                    self.faults += 1
                if passed is None:
                    break
                other.sendall(passed)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


def none(piece, draw):
    return piece


def cuts(piece, draw):
    return None if draw.random() < 0.01 else piece


def loses_answers(piece, draw):
    """Without TLS: what was asked is done, and the answer does not arrive."""
    return None if piece.startswith(b"HTTP/1.1 200") and draw.random() < 0.2 else piece


def truncates(piece, draw):
    """Rare, because the other end waits for what was lost."""
    return piece if draw.random() >= 0.0005 else piece[:len(piece) // 2] or None


def flips(piece, draw, share=0.004):
    if draw.random() >= share:
        return piece
    data = bytearray(piece)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def flips_of_bodies(piece, draw):
    """Damages arrays alone: heads are in short pieces, and no checksum guards them without TLS."""
    return piece if len(piece) < PIECE else flips(piece, draw, 0.01)


def delays(piece, draw):
    time.sleep(draw.uniform(0, 0.02))
    return piece


@contextlib.contextmanager
def small_disk(folder, mebibytes):
    """Mounts a memory disk of this size at a folder. Yields a function that gives it another size."""
    folder.mkdir(parents=True, exist_ok=True)

    def mount(*words):
        return subprocess.run(["mount", *map(str, words)], capture_output=True, text=True, check=False).returncode == 0
    yields = mount("-t", "tmpfs", "-o", f"size={int(mebibytes * 1024)}k", "none", folder)
    try:
        yield (lambda options: mount("-o", f"remount,{options}", folder)) if yields else None
    finally:
        if yields:
            subprocess.run(["umount", "-l", folder], check=False)


def flip_bit(file):
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    stat = file.stat()
    file.write_bytes(data)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # a kept time does not hide it


def copy_run(run, backup, last=("checkpoint",)):
    """A back-up of a run folder while it is written: these entries are copied last, in their order."""
    backup.mkdir()
    entries = sorted(path.name for path in run.iterdir())
    for name in [*(name for name in entries if name not in last), *(name for name in last if name in entries)]:
        copy(run / name, backup / name)
    return backup


def copy(source, target):
    with contextlib.suppress(FileNotFoundError):  # a file may go meanwhile
        if source.is_dir():
            target.mkdir()
            for entry in sorted(os.listdir(source)):
                copy(source / entry, target / entry)
        else:
            shutil.copy2(source, target)


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) { const char* text = getenv("CLOCK_SHIFT"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t clock, struct timespec* at) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "clock_gettime");
  const int code = real(clock, at);
  if (code == 0 && clock == CLOCK_REALTIME) at->tv_sec += shift();
  return code;
}
time_t time(time_t* at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval* at, void* zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""


def shifted_clock(folder, seconds):
    """Words that start a program whose clock is off by so many seconds."""
    library = folder / "clock.so"
    if not library.exists():
        (folder / "clock.c").write_text(CLOCK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, folder / "clock.c", "-ldl"], check=True)
    return ["env", f"LD_PRELOAD={library}", f"CLOCK_SHIFT={seconds}"]

