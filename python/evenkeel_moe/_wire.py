"""Messages between a method's class and the program (src/host): JSON over a Unix socket, tensors in shared memory."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import sys
import threading
from typing import Any, Dict, List, Mapping, Optional, Tuple

__all__ = ["Closed", "Packer", "Wire"]

ALIGNMENT = 64
LEAST_BYTES = 1 << 16


def _encoded(message: Mapping[str, Any]) -> bytes:
    """A message as JSON. Scalars of numpy and torch are numbers."""
    return json.dumps(message, allow_nan=False, separators=(",", ":"), default=_number).encode()


def _number(value: Any) -> Any:
    if not hasattr(value, "item"):
        raise TypeError(f"{value!r} is no number")
    return value.item()


class Closed(Exception):
    """The program has ended."""


class Packer:
    """Collects the arrays of one message. An array that lies in memory of the program goes as its place there, without a copy."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.parts: List[Tuple[int, Any]] = []
        self.known: Dict[int, Any] = {}
        self.end = 0

    def add(self, array: Any) -> Optional[List[Any]]:
        """The place of an array or a torch tensor; None for None."""
        if array is None:
            return None
        if id(array) not in self.known:
            self.known[id(array)] = (array, self._place(self.wire.plain(array)))  # the array too, or its id could be another's
        place: List[Any] = self.known[id(array)][1]
        return place

    def _place(self, array: Any) -> List[Any]:
        kind = array.dtype.str[1:]
        found = self.wire.find(array)
        if found is not None:
            return [kind, list(array.shape), found[1], found[0]]
        offset = self.end
        self.parts.append((offset, array))
        self.end = (offset + array.nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return [kind, list(array.shape), offset, 0]


class Wire:
    """One connection. Threads that send a message and wait for its reply hold `turn`."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.turn = threading.Lock()
        self.maps: Dict[int, mmap.mmap] = {}
        self.holders: Dict[int, int] = {}
        """By segment, the references to its mapping without any array."""
        self.views: Dict[int, memoryview] = {}
        self.places: Dict[int, Tuple[int, int]] = {}
        self.own: Optional[mmap.mmap] = None

    @property
    def numpy(self) -> Any:
        """numpy, which takes longer to import than all else: it is there when the first array is needed."""
        import numpy

        return numpy

    # --- messages ---

    def send(self, message: Dict[str, Any], packer: Optional[Packer] = None) -> None:
        """Sends a message and the arrays that it has places of."""
        self._send(_encoded(message), self._write(packer) if packer is not None and packer.parts else None)

    def finish(self, reply: Dict[str, Any], packer: Packer) -> None:
        """Sends the last message of a call. It names the segments in which the class still holds arrays, which the program must not use
        again."""
        descriptor = self._write(packer) if packer.parts else None
        packer.known.clear()
        packer.parts.clear()
        kept = self.release()
        try:
            data = _encoded({**reply, "kept": kept})
        except (TypeError, ValueError) as error:  # a number that is not finite, or no number
            data = _encoded({"error": {"kind": "data", "text": f"{type(error).__name__} in the result: {error}"}, "kept": kept})
        self._send(data, descriptor)

    def _send(self, data: bytes, descriptor: Optional[int]) -> None:
        try:
            head = struct.pack("<I", len(data))
            if descriptor is None:
                self.socket.sendall(head)
            else:
                socket.send_fds(self.socket, [head], [descriptor])
            self.socket.sendall(data)
        except OSError:
            raise Closed from None
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def receive(self) -> Dict[str, Any]:
        """Waits for a message."""
        head, descriptors = b"", []
        while len(head) < 4:
            try:
                piece, found, _, _ = socket.recv_fds(self.socket, 4 - len(head), 1)
            except OSError:
                raise Closed from None
            if not piece:
                raise Closed
            head += piece
            descriptors += found
        message: Dict[str, Any] = json.loads(self._exactly(struct.unpack("<I", head)[0]))
        if "segment" in message:
            self._open(message["segment"], descriptors)
        return message

    def _exactly(self, size: int) -> bytes:
        pieces, left = [], size
        while left:
            piece = self.socket.recv(min(left, 1 << 20))
            if not piece:
                raise Closed
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    # --- the program's memory ---

    def _open(self, segment: int, descriptors: List[int]) -> None:
        for descriptor in descriptors:
            self.maps[segment] = mmap.mmap(descriptor, 0)
            self.holders[segment] = self._holders(segment)
            os.close(descriptor)
        view = memoryview(self.maps[segment])
        self.views[segment] = view
        self.places[segment] = (self.numpy.frombuffer(view, "u1").__array_interface__["data"][0], len(view))

    def array(self, place: Optional[List[Any]], segment: int) -> Any:
        """The array at a place, a view of shared memory."""
        if place is None:
            return None
        kind, shape, offset = place
        count = 1
        for size in shape:
            count *= size
        if count == 0:
            return self.numpy.zeros(shape, kind)
        return self.numpy.frombuffer(self.views[segment], kind, count, offset).reshape(shape)

    def find(self, array: Any) -> Optional[Tuple[int, int]]:
        """The segment and offset of an array that lies in memory of the program."""
        address = array.__array_interface__["data"][0]
        for segment, (start, size) in [*self.places.items()]:  # another thread may add one
            if start <= address and address + array.nbytes <= start + size:
                return segment, address - start
        return None

    def release(self) -> List[int]:
        """Forgets the program's memory. The segments in which arrays are still held."""
        used = list(self.views)
        self.views.clear()
        self.places.clear()
        kept = [segment for segment in used if self._holders(segment) > self.holders[segment]]
        for segment in kept:
            del self.maps[segment], self.holders[segment]
        return kept

    def _holders(self, segment: int) -> int:
        """References to a mapping. An array of it holds one."""
        return sys.getrefcount(self.maps[segment])

    # --- own memory ---

    def plain(self, array: Any) -> Any:
        """An array or tensor as a contiguous array of numpy in the machine's order of bytes."""
        if hasattr(array, "detach"):
            array = array.detach().cpu().numpy()
        array = self.numpy.asarray(array)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"an array of {array.dtype}, expected numbers")
        return self.numpy.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")

    def floats(self, array: Any) -> Any:
        """An array or tensor as plain() has it, integers and booleans as float64."""
        array = self.plain(array)
        return array.astype("f8") if array.dtype.kind in "iub" else array

    def _write(self, packer: Packer) -> Optional[int]:
        """Copies arrays into own memory. The descriptor of new memory, where the old is too small."""
        descriptor = None
        if self.own is None or len(self.own) < packer.end:
            size = max(LEAST_BYTES, 1 << (packer.end - 1).bit_length())
            descriptor = os.memfd_create("evenkeel-host", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, size)
            self.own = mmap.mmap(descriptor, size)
        whole = self.numpy.frombuffer(self.own, "u1")
        for offset, array in packer.parts:
            whole[offset:offset + array.nbytes] = array.reshape(-1).view("u1")
        return descriptor
