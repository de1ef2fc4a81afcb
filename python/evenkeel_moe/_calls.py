"""The call of a hook that runs in this thread, and what it asks of the program."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, Optional

from ._wire import Packer, Wire
from .errors import EvenkeelError

__all__ = ["Call", "Refused", "current"]

_threads = threading.local()


class Refused(EvenkeelError):
    """The program refused what a hook asked for: the error of a base method's hook, or of a sum."""

    def __init__(self, text: str, number: int) -> None:
        super().__init__(text, 1)
        self.number = number


class Call:
    """One call of a hook."""

    def __init__(self, wire: Wire, hook: str, library: str) -> None:
        self.wire, self.hook, self.library = wire, hook, library
        self.part: Optional[Callable[[Any, float], Any]] = None
        self.failed: Optional[BaseException] = None
        self.arguments: Dict[str, Any] = {}

    def __enter__(self) -> Call:
        _threads.call = self
        return self

    def __exit__(self, *_: Any) -> None:
        _threads.call = None
        self.arguments, self.part = {}, None  # they hold this object: without them, arrays end with the call

    # --- asking ---

    def ask(self, message: Mapping[str, Any], packer: Optional[Packer] = None) -> Dict[str, Any]:
        """The program's answer. It may ask for parts of a sum before it answers."""
        self.wire.send({**message}, packer)
        while True:
            reply = self.wire.receive()
            if "part" in reply:
                self._answer_part(reply)
            elif "refused" in reply:
                failed, self.failed = self.failed, None
                raise failed if failed is not None else Refused(reply["refused"], reply["refusal"])
            else:
                return reply

    def _answer_part(self, message: Mapping[str, Any]) -> None:
        from ._objects import Upload

        packer = Packer(self.wire)
        reply: Dict[str, Any]
        try:
            assert self.part is not None
            reply = {"result": packer.add(self.part(Upload(self, message["part"]), message["weight"]))}
        except Exception as error:
            self.failed, packer = error, Packer(self.wire)
            reply = {"error": {"text": str(error)}}
        self.wire.send(reply, packer)

    def base(self, hook: str, **arguments: Any) -> Any:
        """Calls the base method's hook with the arguments, for `super().hook()`. Raises RuntimeError for another hook than the one that
        runs, and TypeError for arguments that the base method cannot get."""
        from . import _hooks

        if hook != self.hook:
            raise RuntimeError(f"the base method's {hook} is called in {self.hook}, which can call the base method's {self.hook} alone")
        packer = Packer(self.wire)
        given = {key: _hooks.given_to_base(self, key, value, packer) for key, value in arguments.items()}
        reply = self.ask({"ask": "super", "arguments": given}, packer)
        return _hooks.base_result(self, reply["answer"], arguments)

    def group(self, of: int, name: str) -> Dict[str, Any]:
        """A group of tensors of an object, as arrays by name, or as factors by site."""
        from ._objects import Factors

        reply = self.ask({"ask": "group", "of": of, "name": name})
        segment = reply.get("segment", 0)
        group: Dict[str, Any] = {}
        for key, entry in reply["answer"].items():
            if len(entry) == 5:
                group[key] = Factors(*(self.leaf(name, self.array(place, segment)) for place in entry[:3]), scaling=entry[4],
                                     ranks=self.array(entry[3], segment))
            else:
                group[key] = self.leaf(name, self.array(entry, segment))
        return group

    def leaf(self, group: str, tensor: Any) -> Any:
        """A tensor, by which torch differentiates the loss of a hook if it is a parameter or holds router logits."""
        is_variable = group in ("parameters", "extra_parameters") or group.startswith("logits/")
        if tensor is not None and is_variable and self.library == "torch" and self.hook in ("extra_loss", "penalty"):
            tensor.requires_grad_(True)
        return tensor

    def tensor(self, message: Mapping[str, Any], part: Optional[Callable[[Any, float], Any]] = None) -> Any:
        """The tensor that the program answers with."""
        before, self.part = self.part, part
        try:
            reply = self.ask(message)
        finally:
            self.part = before
        return self.array(reply["answer"], reply.get("segment", 0))

    # --- arrays ---

    def array(self, place: Optional[List[Any]], segment: int) -> Any:
        """The array at a place, of the class's library."""
        array = self.wire.array(place, segment)
        if array is None or self.library == "numpy":
            return array
        import torch

        return torch.from_numpy(array)


def current() -> Call:
    """The call of this thread. Raises RuntimeError outside of a hook."""
    call: Optional[Call] = getattr(_threads, "call", None)
    if call is None:
        raise RuntimeError("a base method's hook is called outside of a hook of this class")
    return call
