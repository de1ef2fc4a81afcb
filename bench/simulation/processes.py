"""Starts a system with all its processes, and measures wall time, processor time and memory of all of them together.

A process belongs to a run if its environment has the run's TAG, which children inherit, also those that leave the
process group (Ray's daemons).
"""
import os
import pathlib
import subprocess
import threading
import time
import uuid

TAG = "EVENKEEL_SIMULATION_RUN"
TICKS = os.sysconf("SC_CLK_TCK")
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
PEERS = {"HF_HUB_OFFLINE": "1", "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false",
         "RAY_worker_niceness": "0"}  # not 15, with which other programs on the machine would delay Flower more than the others


def read(path):
    """Returns the bytes of a file of /proc, empty if its process has ended."""
    try:
        return pathlib.Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def tagged(tag):
    """Returns the ids of all processes of a run."""
    wanted = f"{TAG}={tag}".encode()
    return [name for name in os.listdir("/proc") if name.isdigit() and wanted in read(f"/proc/{name}/environ").split(b"\0")]


def processor_seconds(tag):
    """Returns the processor time of a run's processes and of their children that have ended and were waited for."""
    ticks = 0
    for process in tagged(tag):
        fields = read(f"/proc/{process}/stat").rpartition(b")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / TICKS


def pss_mib(tag):
    """Returns the proportional set size of a run's processes together, in MiB. Shared pages are counted once."""
    kib = 0
    for process in tagged(tag):
        for line in read(f"/proc/{process}/smaps_rollup").splitlines():
            if line.startswith(b"Pss:"):
                kib += int(line.split()[1])
    return kib / 1024


class PeakMemory(threading.Thread):
    """Samples the memory of a run until stop() is called."""

    def __init__(self, tag, every=0.2):
        super().__init__(daemon=True)
        self.tag, self.every, self.peak, self.ended = tag, every, 0.0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(self.every):
            self.peak = max(self.peak, pss_mib(self.tag))

    def stop(self):
        self.ended.set()
        self.join()
        return self.peak


def output(command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def stamp(tag, start):
    return {"wall_s": time.monotonic() - start, "cpu_s": processor_seconds(tag)}


def run(command, mark_of, log, memory=False):
    """Runs a command to its end and returns its marks: what `mark_of` returns for a line of its standard output (None:
    nothing), with wall and processor seconds since the start. With `memory` also the peak in MiB, else 0.

    `log` gets all of its output. A command that fails ends the benchmark with the end of this file.
    """
    tag, start, marks = uuid.uuid4().hex, time.monotonic(), []
    environment = {**os.environ, **ONE_THREAD, **PEERS, TAG: tag}
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=file, text=True, env=environment)
        sampler = PeakMemory(tag) if memory else None
        for line in process.stdout:
            mark = mark_of(line)
            if mark is not None:
                marks.append({**stamp(tag, start), **mark})
            file.write(line)
        peak = sampler.stop() if sampler else 0.0
    if process.wait() != 0:
        raise SystemExit(f"{command[0]} exit {process.returncode}: {pathlib.Path(log).read_text(encoding='utf-8')[-3000:]}")
    return marks, peak


def between(marks):
    """Returns the seconds between each two marks that follow one another, and the loss of the second."""
    return [{"wall_s": after["wall_s"] - before["wall_s"], "cpu_s": after["cpu_s"] - before["cpu_s"], "loss": after["loss"]}
            for before, after in zip(marks, marks[1:])]


def summary(marks, peak):
    """Returns what is told of a federated run, from the marks of its beginning and of the end of each round."""
    first, *rounds = between(marks)
    return {"startup_s": marks[0]["wall_s"], "first_round": first, "rounds": rounds, "peak_pss_mib": peak}
