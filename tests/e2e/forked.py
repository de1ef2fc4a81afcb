"""The program forked from one that has started (fork_server.cpp), for tables of many short commands."""

import array
import atexit
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ["EVENKEEL_PROGRAM"]).with_name("fork_server")
LONGEST = 100_000  # bytes of a request; the kernel bounds a packet


class ForkServer:
    """One started program, and the environment it was started in."""

    def __init__(self, environment):
        self.environment = environment
        self.socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self.process = subprocess.Popen([PROGRAM], stdin=end, env=environment, start_new_session=True)

    def run(self, words, cwd, streams, timeout):
        """The exit code of a command, as subprocess gives it."""
        request = b"".join(os.fsencode(word) + b"\0" for word in (cwd, *words))
        self.socket.settimeout(timeout)
        self.socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
        answer = self.socket.recv(16)
        assert len(answer) == 4, "the fork server has ended"
        return os.waitstatus_to_exitcode(struct.unpack("i", answer)[0])

    def end(self):
        """The server and, where one hangs, its command."""
        self.socket.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SERVER = None


def server():
    """The one of this process; another one when the environment has changed or the last one has ended."""
    global SERVER
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_CURRENT_TEST", None)
    if SERVER is None or SERVER.process.poll() is not None or SERVER.environment != environment:
        stop()
        SERVER = ForkServer(environment)
    return SERVER


@atexit.register
def stop():
    global SERVER
    if SERVER is not None:
        SERVER.end()
        SERVER = None


def forked(*arguments, cwd=ROOT, timeout=300, errors="strict"):
    """As tiny.evenkeel()."""
    words = [*map(str, arguments)]
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            code = server().run(words, cwd, [nothing.fileno(), out.fileno(), err.fileno()], timeout)
        except TimeoutError:
            stop()
            raise subprocess.TimeoutExpired(words, timeout) from None
        said = [stream.seek(0) or stream.read().decode(errors=errors) for stream in (out, err)]
    return subprocess.CompletedProcess(words, code, *said)


def fits(*arguments):
    return sum(len(os.fsencode(str(word))) + 1 for word in arguments) < LONGEST
