"""A federated method as a class: `class MyMethod(ek.Method)` with the hooks that differ from its base method's.

    class ServerMomentum(ek.Method):
        momentum: float = 0.9

        def aggregate(self, server, state, round, uploads):
            new = super().aggregate(server, state, round, uploads)
            ...
            return new

docs/tutorial-new-method.md explains the hooks. Tensors are arrays of numpy, or of torch where the class says `library = "torch"`. They
are views of memory that the program shares: what a hook edits in place is edited there, and what the program does not
read back cannot be edited. It reads back the `state` of `aggregate` if that is returned or given to `super()`.
Arguments are valid during the call; copy what lasts into `state.memory` or `view.memory`, which are saved with every
round.
"""

from __future__ import annotations

import re
import typing
from typing import Any, Dict, List, Mapping, Optional, Tuple

from . import _calls
from ._objects import Client, Download, Factors, LocalSetup, Loss, Payload, RoundView, RoutingCounts, Server, ServerState, Step, Uploads, View

__all__ = ["HOOKS", "Method", "described", "method_name"]

HOOKS = ("prepare", "extra_loss", "penalty", "edit_gradients", "edit_parameters", "upload", "check_upload", "initialize", "broadcast",
         "aggregate", "diagnostics", "pseudo_gradients")
SETTINGS = frozenset({"name", "title", "paper", "sends", "base", "base_options", "family", "exact", "needs_experts", "needs_individuals", "changes_base",
                      "gate_norm", "metrics", "library", "seconds"})
TYPES = {bool: "bool", int: "int", float: "float", str: "str", List[int]: "list[int]", List[float]: "list[float]", List[str]: "list[str]"}


class Method:
    """A method. Annotated attributes of a subclass are its options: keys of `[method.<name>]` with the default that they are set to.
    `Annotated[float, "share of the last move, 0 .. 1"]` gives a key its text. Objects do not change: state is in the arguments."""

    name: Optional[str] = None
    """In configs; None: the class's name, ServerMomentum as server-momentum."""
    title: Optional[str] = None
    """In tables; None: the class's name."""
    paper: str = ""
    sends: str = ""
    """What a client uploads, for the operators of nodes; "": as the base method."""
    base: str = "fedit"
    """The method whose hooks run where none is overridden."""
    base_options: Mapping[str, Any] = {}
    """Values of keys of the base method."""
    family: Optional[str] = None
    """What a budget means, "sparsity", "rank" or "homogeneous"; None: as the base method. So are the next four."""
    gate_norm: Optional[str] = None
    """Default of method.gate_norm."""
    needs_experts: Optional[bool] = None
    needs_individuals: Optional[bool] = None
    """True: `aggregate` reads single uploads; False: sums over clients."""
    changes_base: Optional[bool] = None
    """True: `aggregate` may set `base_delta`, which all clients add to the base."""
    exact: Optional[bool] = None
    """True: the aggregate is the mean of the products B A. None: as the base method, if no hook is overridden."""
    metrics: Mapping[str, Tuple[float, float]] = {}
    """Metrics that clients report beside the base method's, with their least and largest value."""
    library: str = "numpy"
    """"numpy" or "torch": what tensors are."""
    seconds: float = 300.0
    """Seconds that a hook may go without asking the program."""

    def __init__(self, **options: Any) -> None:
        """options: the keys that differ from their defaults. Raises TypeError and ValueError for a wrong name, type or value."""
        known = options_of(type(self))
        for key, value in options.items():
            if key not in known:
                raise TypeError(f"{type(self).__name__} has no option {key}; it has {', '.join(known) or 'none'}")
            setattr(self, key, _as_type(value, known[key]["type"], key))
        for key in known.keys() - options.keys():
            setattr(self, key, known[key]["default"])
        self.check_options()

    @property
    def options(self) -> Dict[str, Any]:
        """The value of every option."""
        return {key: getattr(self, key) for key in options_of(type(self))}

    def check_options(self) -> None:
        """Raises ValueError for values that are not allowed. Override it."""

    # --- client, in the order of a round ---

    def prepare(self, download: Download, view: View) -> LocalSetup:
        """The adapters that a client trains, and how it routes. Also called for evaluations (`view.client.trains` is False)."""
        result: LocalSetup = _calls.current().base("prepare", download=download, view=view)
        return result

    def extra_loss(self, step: Step) -> Optional[Loss]:
        """A loss added to that of each micro-batch: of its router logits (`step.routing[-1]`) and of the parameters. ek.Loss with
        gradients, or with library "torch" a scalar that torch differentiates. Nothing else of the model is in its graph."""
        result: Optional[Loss] = _calls.current().base("extra_loss", step=step)
        return result

    def penalty(self, step: Step) -> Optional[Loss]:
        """A loss of the parameters alone, added once per step."""
        result: Optional[Loss] = _calls.current().base("penalty", step=step)
        return result

    def edit_gradients(self, step: Step) -> None:
        """Edits `step.gradients` in place, before max_grad_norm and the optimiser."""
        _calls.current().base("edit_gradients", step=step)

    def edit_parameters(self, step: Step) -> None:
        """Edits `step.parameters` in place, after the optimiser."""
        _calls.current().base("edit_parameters", step=step)

    def upload(self, download: Download, setup: LocalSetup, counts: Mapping[str, RoutingCounts], view: View) -> Payload:
        """What the client sends after its steps. Its names, shapes and types must follow from `download` and `setup` alone: the server
        calls it too, to know what to expect."""
        result: Payload = _calls.current().base("upload", download=download, setup=setup, counts=counts, view=view)
        return result

    # --- server ---

    def check_upload(self, upload: Payload, client: Client) -> None:
        """Raises ValueError for values that no honest client sends."""
        _calls.current().base("check_upload", upload=upload, client=client)

    def initialize(self, server: Server) -> ServerState:
        """The state before the first round, with an empty `base_delta`."""
        result: ServerState = _calls.current().base("initialize", server=server)
        return result

    def broadcast(self, state: ServerState, client: Client, round: RoundView) -> Payload:
        """What a client receives; for an evaluation `round` has no participants."""
        result: Payload = _calls.current().base("broadcast", state=state, client=client, round=round)
        return result

    def aggregate(self, server: Server, state: ServerState, round: RoundView, uploads: Uploads) -> ServerState:
        """The state after a round: `state`, which can be edited, or another. Edits of `state` are lost with another, unless
        `super().aggregate()` got them."""
        result: ServerState = _calls.current().base("aggregate", server=server, state=state, round=round, uploads=uploads)
        return result

    def diagnostics(self, state: ServerState) -> Dict[str, Any]:
        """Numbers and small arrays for the records of the round."""
        result: Dict[str, Any] = _calls.current().base("diagnostics", state=state)
        return result

    def pseudo_gradients(self, state: ServerState) -> Dict[str, Factors]:
        """Pseudo-gradients of the next round by site, for `evenkeel pg-alignment`."""
        result: Dict[str, Factors] = _calls.current().base("pseudo_gradients", state=state)
        return result


def overridden(cls: type) -> List[str]:
    """The hooks that a class overrides."""
    return [hook for hook in HOOKS if getattr(cls, hook) is not getattr(Method, hook)]


def method_name(cls: type) -> str:
    """The name of a class in configs."""
    name: Optional[str] = getattr(cls, "name", None)
    return name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).replace("_", "-").lower()


def _annotations(cls: type) -> Dict[str, Any]:
    """The annotated names of a class that are options, with their types."""
    own = [one for one in reversed(cls.__mro__) if issubclass(one, Method) and one is not Method]
    names = [name for one in own for name in one.__dict__.get("__annotations__", {})]
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in names
            if not name.startswith("_") and name not in SETTINGS and typing.ClassVar not in (hints[name], typing.get_origin(hints[name]))}


def options_of(cls: type) -> Dict[str, Dict[str, Any]]:
    """The options of a class by name: type, default and help. Raises TypeError for one that no config can hold."""
    options = {}
    for name, hint in _annotations(cls).items():
        if hasattr(Method, name):
            raise TypeError(f"{cls.__name__}.{name} is annotated as an option, but {name} is an attribute of ek.Method: give the option another name")
        text = ""
        if typing.get_origin(hint) is typing.Annotated:
            text = " ".join(str(part) for part in hint.__metadata__)
            hint = hint.__origin__
        kind = next((word for known, word in TYPES.items() if hint == known or str(hint) == word), None)
        if kind is None:
            raise TypeError(f"{cls.__name__}.{name} is of type {hint}, allowed: bool, int, float, str and lists of the last three")
        if not hasattr(cls, name):
            raise TypeError(f"{cls.__name__}.{name} has no default")
        options[name] = {"name": name, "type": kind, "default": _as_type(getattr(cls, name), kind, name), "help": text}
    return options


def _as_type(value: Any, kind: str, name: str) -> Any:
    """A value of an option's type. An integer is a number of kind float too, and numbers and arrays of numpy are those of Python."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if kind.startswith("list["):
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} is {value!r}, expected a list")
        return [_as_type(entry, kind[5:-1], name) for entry in value]
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    wanted = {"bool": bool, "int": int, "float": float, "str": str}[kind]
    if not isinstance(value, wanted) or (kind == "int" and isinstance(value, bool)):
        raise TypeError(f"{name} is {value!r}, expected {kind}")
    return value


def described(cls: Any, file: str, sha256: str) -> Dict[str, Any]:
    """What the program has to know of a class (src/methods/described_method.h). Raises TypeError for a class that is none."""
    from ._toml import toml_value

    if not (isinstance(cls, type) and issubclass(cls, Method) and cls is not Method):
        raise TypeError(f"{getattr(cls, '__name__', cls)!r} is no class of a method: class {getattr(cls, '__name__', 'X')}(ek.Method)")
    if cls.library not in ("numpy", "torch"):
        raise TypeError(f"{cls.__name__}.library is {cls.library!r}, allowed: numpy, torch")
    if not cls.seconds > 0:
        raise TypeError(f"{cls.__name__}.seconds is {cls.seconds!r}, allowed: above 0")
    base_options = "".join(f"{key} = {toml_value(value, key)}\n" for key, value in cls.base_options.items())
    return {"name": method_name(cls), "title": cls.title or cls.__name__, "paper": cls.paper, "sends": cls.sends, "base": cls.base,
            "base_options": base_options, "family": cls.family, "exact": cls.exact, "needs_experts": cls.needs_experts,
            "needs_individuals": cls.needs_individuals, "changes_base": cls.changes_base, "gate_norm": cls.gate_norm,
            "metrics": {key: list(value) for key, value in cls.metrics.items()}, "seconds": float(cls.seconds),
            "hooks": overridden(cls), "options": list(options_of(cls).values()), "file": file, "class": cls.__name__, "sha256": sha256}
