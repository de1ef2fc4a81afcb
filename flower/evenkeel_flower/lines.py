"""Lines of JSON over a Unix socket, arrays beside them in a memfd: docs/json-lines.md of evenkeel, both sockets."""

import array
import base64
import contextlib
import fcntl
import json
import math
import mmap
import os
import socket

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

VERSION = 1
MOST_LINE = 64 << 20
ALIGNED = 64
PIECE = 1 << 30  # of a write: the kernel takes no 2 GiB at once


class Refused(Exception):
    """The other end said no, in one line."""

    def __init__(self, answer):
        super().__init__(answer.get("error", "refused without a reason"))
        self.code = answer.get("code", 2)


# --- values ---

def value_to_json(value):
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return [value_to_json(entry) for entry in value] if isinstance(value, list) else value


def value_of_json(value):
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True) if "base64" in value else float(value["float"])
    return [value_of_json(entry) for entry in value] if isinstance(value, list) else value


# --- records ---

def record_to_json(name, record, images):
    """`images` grows by (offset, bytes) of each array."""
    if isinstance(record, ArrayRecord):
        return {"name": name, "arrays": [array_to_json(key, entry, images) for key, entry in record.items()]}
    kind = "config" if isinstance(record, ConfigRecord) else "metrics"
    return {"name": name, kind: {key: value_to_json(value) for key, value in record.items()}}


def array_to_json(name, entry, images):
    offset = 0
    if images:
        end = images[-1][0] + len(images[-1][1])
        offset = -(-end // ALIGNED) * ALIGNED
    images.append((offset, entry.data))
    return {"name": name, "dtype": entry.dtype, "shape": list(entry.shape), "stype": entry.stype, "offset": offset,
            "bytes": len(entry.data)}


def record_of_json(record, image):
    if "arrays" in record:
        return ArrayRecord({entry["name"]: Array(entry["dtype"], tuple(entry["shape"]), entry["stype"],
                                                 image(entry["offset"], entry["bytes"])) for entry in record["arrays"]})
    made, values = (ConfigRecord, record["config"]) if "config" in record else (MetricRecord, record["metrics"])
    return made({key: value_of_json(value) for key, value in values.items()})


def content_of(records, image):
    return RecordDict({record["name"]: record_of_json(record, image) for record in records})


# --- memory ---

def sealed_memory(images):
    """A memfd with every image at its offset."""
    memory = os.memfd_create("evenkeel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    for offset, data in images:
        view = memoryview(data)
        while view:
            written = os.pwrite(memory, view[:PIECE], offset)
            view, offset = view[written:], offset + written
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return memory


@contextlib.contextmanager
def images_in(memory, size):
    """A function from offset and length to bytes. Nothing but the images is copied."""
    if memory is None:
        yield no_images
        return
    if not fcntl.fcntl(memory, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or os.fstat(memory).st_size < size:
        raise ValueError("arrays arrived in memory that is too short, or not sealed against shrinking")
    with mmap.mmap(memory, size, prot=mmap.PROT_READ) as mapped:

        def image(offset, length):
            if offset < 0 or length < 0 or offset + length > size:
                raise ValueError(f"an array lies at {offset}, {length} bytes, of memory of {size}")
            return mapped[offset:offset + length]

        yield image


def no_images(offset, length):
    raise ValueError("arrays without the memory that holds them")


# --- lines ---

class Lines:
    """One end of a connection."""

    def __init__(self, connection):
        self.connection, self.buffer, self.memories = connection, bytearray(), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for memory in self.memories:
            os.close(memory)
        self.memories.clear()
        self.connection.close()

    def send(self, line, content=None):
        """With the records of a RecordDict, if there is one."""
        images = []
        if content is not None:
            line = {**line, "records": [record_to_json(name, record, images) for name, record in content.items()]}
        memory = None
        if images and (size := images[-1][0] + len(images[-1][1])):
            memory, line = sealed_memory(images), {**line, "bytes": size}
        try:
            self.send_line(line, memory)
        finally:
            if memory is not None:
                os.close(memory)

    def send_line(self, line, memory):
        data = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        if len(data) > MOST_LINE:
            raise ValueError(f"a line of {len(data)} bytes, allowed: up to {MOST_LINE}")
        beside = [] if memory is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))]
        if left := data[self.connection.sendmsg([data], beside):]:
            self.connection.sendall(left)

    def receive(self):
        """A line and the descriptor beside it, which the caller closes; (None, None) when the other end is gone."""
        while (end := self.buffer.find(b"\n")) < 0:
            if len(self.buffer) > MOST_LINE:
                raise ValueError(f"a line of more than {MOST_LINE} bytes")
            if not self.receive_more():
                return None, None
        line = json.loads(self.buffer[:end])
        del self.buffer[:end + 1]
        if not isinstance(line, dict):
            raise ValueError("a line that is no JSON object")
        if not line.get("bytes"):
            return line, None
        if not self.memories:
            raise ValueError("arrays without the memory that holds them")
        return line, self.memories.pop(0)

    def receive_more(self):
        try:
            data, beside, _, _ = self.connection.recvmsg(1 << 16, socket.CMSG_SPACE(4 * array.array("i").itemsize))
        except ConnectionResetError:
            return False
        for level, kind, descriptors in beside:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(descriptors[:len(descriptors) - len(descriptors) % numbers.itemsize])
                self.memories.extend(numbers)
        self.buffer += data
        return bool(data)

    def receive_content(self):
        """A line and the RecordDict in it; (None, None) when the other end is gone."""
        line, memory = self.receive()
        try:
            if line is None or "records" not in line:
                return line, None
            with images_in(memory, line.get("bytes", 0)) as image:
                return line, content_of(line["records"], image)
        finally:
            if memory is not None:
                os.close(memory)

    def ask(self, line, content=None):
        """The answer to a line, and the RecordDict in it. Raises Refused, or ConnectionError when nobody answers."""
        self.send(line, content)
        answer, records = self.receive_content()
        if answer is None:
            raise ConnectionError("the other end has gone without an answer")
        if not answer.get("ok"):
            raise Refused(answer)
        return answer, records


def connect(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return Lines(connection)
