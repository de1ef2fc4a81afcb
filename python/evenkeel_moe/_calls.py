"""The call of a hook that runs in this thread, and what it asks of the program."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from ._wire import Packer, Wire
from .errors import EvenkeelError

__all__ = ["Call", "Refused", "current"]

_threads = threading.local()

PartOf = Callable[[Any, float], Any]
"""A term of a sum, from an upload and its weight."""

OF_PARTS = frozenset({"group", "sites"})
"""What a part of a sum may ask for. Anything else would wait for the sum."""


class Refused(EvenkeelError):
    """The program refused what a hook asked for: the error of a base method's hook, or of a sum."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, 1)
        self.number = number


class Call:
    """One call of a hook. Threads that the hook starts may ask too; they take turns."""

    def __init__(self, wire: Wire, hook: str, library: str) -> None:
        self.wire, self.hook, self.library = wire, hook, library
        self.arguments: Dict[str, Any] = {}
        self.is_in_part = self.has_ended = False
        self.fixed: List[Tuple[str, Any]] = []
        """Tensors of torch that a hook can only read, with the names of their groups."""

    def __enter__(self) -> Call:
        _threads.call = self
        return self

    def __exit__(self, *_: Any) -> None:
        _threads.call = None
        with self.wire.turn:
            self.has_ended = True
        self.arguments, self.fixed = {}, []  # they hold this object: without them, arrays end with the call

    # --- asking ---

    def ask(self, message: Mapping[str, Any], packer: Optional[Packer] = None,
            part: Optional[PartOf] = None) -> Dict[str, Any]:
        """The program's answer. It may ask for parts of a sum before it answers. Raises RuntimeError after the call,
        and in a part for what a part cannot ask for."""
        failed: Optional[BaseException] = None
        reply = self._exchanged(message, packer)
        while "part" in reply:
            answer, packer, error = self._part(reply, part)
            failed = failed or error
            reply = self._exchanged(answer, packer)
        if "refused" in reply:
            raise failed if failed is not None else Refused(reply["refused"], reply["refusal"])
        return reply

    def _exchanged(self, message: Mapping[str, Any], packer: Optional[Packer]) -> Dict[str, Any]:
        """Sends a message and waits for the reply."""
        asked = message.get("ask")  # None: this is the answer of a part
        with self.wire.turn:
            if self.has_ended:
                raise RuntimeError("an object of an earlier call: a hook keeps no arguments")
            if self.is_in_part and asked is not None and asked not in OF_PARTS:
                raise RuntimeError("a part of a sum asks for a sum, a mean or the base method's hook: ask before the sum")
            self.is_in_part = self.is_in_part and asked is not None
            self.wire.send({**message}, packer)
            reply = self.wire.receive()
            self.is_in_part = self.is_in_part or "part" in reply
            return reply

    def _part(self, message: Mapping[str, Any],
              part: Optional[PartOf]) -> Tuple[Dict[str, Any], Packer, Optional[BaseException]]:
        """The message with a part of a sum, its arrays, and the error of a part that failed. Integers are summed as
        float64."""
        from ._objects import Upload

        packer = Packer(self.wire)
        try:
            assert part is not None
            value = part(Upload(self, message["part"]), message["weight"])
            return {"result": packer.add(None if value is None else self.wire.floats(value))}, packer, None
        except BaseException as error:  # exit() too: the program waits for an answer
            return {"error": {"text": str(error)}}, Packer(self.wire), error

    def base(self, hook: str, **arguments: Any) -> Any:
        """Calls the base method's hook with the arguments, for `super().hook()`. Raises RuntimeError for another hook than the one that
        runs, and TypeError for arguments that the base method cannot get."""
        from . import _hooks

        if hook != self.hook:
            raise RuntimeError(f"the base method's {hook} is called in {self.hook}, which can call the base method's {self.hook} alone")
        self.check_fixed()
        packer = Packer(self.wire)
        given = {key: _hooks.given_to_base(self, key, value, packer) for key, value in arguments.items()}
        reply = self.ask({"ask": "super", "arguments": given}, packer)
        return _hooks.base_result(self, reply["answer"], arguments)

    def group(self, of: int, name: str, fixed: str = "") -> Dict[str, Any]:
        """A group of tensors of an object, as arrays by name, or as factors by site. fixed: the name of a group that is
        read-only; "": it can be edited."""
        from ._objects import Factors, FixedFactors, TrainedFactors

        reply = self.ask({"ask": "group", "of": of, "name": name})
        segment = reply.get("segment", 0)
        factors = FixedFactors if fixed else TrainedFactors if name in ("parameters", "gradients") else Factors
        group: Dict[str, Any] = {}
        for key, entry in reply["answer"].items():
            if len(entry) == 5:
                group[key] = factors(*(self.leaf(name, self.array(place, segment, fixed)) for place in entry[:3]),
                                     scaling=entry[4], ranks=self.array(entry[3], segment, fixed))
            else:
                group[key] = self.leaf(name, self.array(entry, segment, fixed))
        return group

    def leaf(self, group: str, tensor: Any) -> Any:
        """A tensor, with requires_grad where a loss hook may differentiate by it."""
        is_variable = group in ("parameters", "extra_parameters") or group.startswith("logits/")
        if tensor is not None and is_variable and self.library == "torch" and self.hook in ("extra_loss", "penalty"):
            tensor.requires_grad_(True)
        return tensor

    def tensor(self, message: Mapping[str, Any], part: Optional[PartOf] = None) -> Any:
        """The tensor that the program answers with."""
        reply = self.ask(message, part=part)
        return self.array(reply["answer"], reply.get("segment", 0))

    # --- arrays ---

    def array(self, place: Optional[List[Any]], segment: int, fixed: str = "") -> Any:
        """The array at a place, of the class's library. fixed: as of group()."""
        array = self.wire.array(place, segment)
        if array is None:
            return None
        if self.library == "numpy":
            array.flags.writeable = not fixed
            return array
        import torch

        tensor = torch.from_numpy(array)
        if fixed:
            self.fixed.append((fixed, tensor))
        return tensor

    def check_fixed(self) -> None:
        """Raises TypeError where a read-only tensor was edited: torch only counts such edits."""
        for name, tensor in self.fixed:
            if not tensor.is_inference() and tensor._version > 0:
                raise TypeError(f"a tensor of {name} was edited: the program would not see the change; edit a copy")


def current() -> Call:
    """The call of this thread. Raises RuntimeError outside of a hook."""
    call: Optional[Call] = getattr(_threads, "call", None)
    if call is None:
        raise RuntimeError("a base method's hook is called outside of a hook of this class")
    return call
