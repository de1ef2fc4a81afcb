"""Runs commands of the program without its start-up time: they are forked from a started program (fork_server.cpp)."""

import array
import atexit
import io
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
EVENKEEL = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", ROOT / "build/evenkeel"))
PROGRAM = EVENKEEL.with_name("fork_server")
LONGEST = 100_000  # bytes of a request; the kernel limits the size of a packet


class ForkServer:
    """A started program, and the environment in which it was started."""

    def __init__(self, environment):
        self.environment = environment
        self.socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            self.process = subprocess.Popen([PROGRAM, EVENKEEL], stdin=end, env=environment, start_new_session=True)

    def run(self, words, cwd, streams, timeout):
        """Runs a command and returns its exit code as subprocess does."""
        request = b"".join(os.fsencode(word) + b"\0" for word in (cwd, *words))
        self.socket.settimeout(timeout)
        self.socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))])
        answer = self.socket.recv(16)
        assert len(answer) == 4, "the fork server has ended"
        return os.waitstatus_to_exitcode(struct.unpack("i", answer)[0])

    def end(self):
        """Ends the server and a command that still runs."""
        self.socket.close()
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


SERVER = None


def server():
    """Returns this process's server. Starts a new one if the environment has changed or the last one has ended."""
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


def forked_bytes(*arguments, cwd=ROOT, timeout=600, input=b""):
    """Runs a command and returns it with stdout and stderr as bytes. Its stdin is a file with `input`, or /dev/null."""
    words = [*map(str, arguments)]
    with tempfile.TemporaryFile() if input else open(os.devnull, "rb") as given, tempfile.TemporaryFile() as out, \
            tempfile.TemporaryFile() as err:
        if input:
            given.write(input)
            given.seek(0)
        try:
            code = server().run(words, cwd, [stream.fileno() for stream in (given, out, err)], timeout)
        except BaseException as error:  # the command still runs; the next call must not get its answer
            stop()
            if isinstance(error, TimeoutError):
                raise subprocess.TimeoutExpired(words, timeout) from None
            raise
        said = [stream.seek(0) or stream.read() for stream in (out, err)]
    return subprocess.CompletedProcess(words, code, *said)


def forked(*arguments, errors="strict", input="", **options):
    """Runs forked_bytes() with text, as tiny.evenkeel() does. Line ends are translated as in subprocess."""
    done = forked_bytes(*arguments, input=input.encode(), **options)
    done.stdout, done.stderr = (io.TextIOWrapper(io.BytesIO(said), "utf-8", errors).read() for said in (done.stdout, done.stderr))
    return done


def fits(*arguments):
    return sum(len(os.fsencode(str(word))) + 1 for word in arguments) < LONGEST
