"""Runs a child process and measures its memory."""

import os
import pathlib
import subprocess
import time

from tiny import PROGRAM, ROOT


def memory_of(pid):
    """Returns (anonymous, file-backed) resident bytes, or None if the process has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "RssAnon" not in fields:
        return None
    return tuple(int(fields[key].split()[0]) * 1024 for key in ("RssAnon", "RssFile"))


class Measured:
    """Runs the program. `wait` samples its memory every 5 ms and records the peaks."""

    def __init__(self, *arguments, threads=None, **options):
        self.anonymous = self.file_backed = self.resident = 0
        self.began = time.monotonic()
        environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
        self.process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment, **options)

    def wait(self, until=lambda: False, interval=0.005):
        """Waits until the process ends or `until()` returns true. Returns whether it ended."""
        while self.process.poll() is None:
            seen = memory_of(self.process.pid)
            if seen:
                self.anonymous, self.file_backed = max(self.anonymous, seen[0]), max(self.file_backed, seen[1])
                self.resident = max(self.resident, sum(seen))
            if until():
                return False
            time.sleep(interval)
        self.seconds = time.monotonic() - self.began
        return True

    def finish(self):
        self.wait()
        out, error = self.process.communicate()
        assert self.process.returncode == 0, error
        return out
