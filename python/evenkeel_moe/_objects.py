"""Arguments and results of a method's hooks. Groups of tensors are read when they are first used."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any, Callable, ClassVar, Dict, FrozenSet, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union, overload

__all__ = ["Client", "Download", "Factors", "LocalSetup", "Loss", "Payload", "RoundView", "RoutingCounts", "Server", "ServerState", "Site", "Step",
           "Upload", "Uploads", "View"]

Array = Any
T = TypeVar("T")


def _not_set(one: Any, name: str) -> AttributeError:
    return AttributeError(f"{type(one).__name__}.{name} cannot be set: the program would not see the change")


class Factors:
    """The factors of an adapted weight: a [*, r, in], b [*, out, r], core [*, r, r], where * is empty or the number of experts. The
    weight changes by scaling * b (core) a. None: not there."""

    __slots__ = ("a", "b", "core", "ranks", "scaling")

    def __init__(self, a: Array = None, b: Array = None, core: Array = None, *, scaling: float = 1.0, ranks: Array = None) -> None:
        self.a, self.b, self.core, self.scaling, self.ranks = a, b, core, scaling, ranks

    def __repr__(self) -> str:
        return "Factors(" + ", ".join(f"{name}={list(array.shape)}" for name, array in self.items()) + f", scaling={self.scaling:g})"

    def items(self) -> List[Any]:
        """(name, array) of the factors that are there."""
        return [(name, getattr(self, name)) for name in ("a", "b", "core") if getattr(self, name) is not None]


class FixedFactors(Factors):
    """Factors that a hook can only read. A copy can be edited."""

    __slots__ = ()
    _fixed: ClassVar[FrozenSet[str]] = frozenset(Factors.__slots__)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed and hasattr(self, name):
            raise _not_set(self, name)
        super().__setattr__(name, value)

    def __reduce__(self) -> Any:
        return _factors, (self.a, self.b, self.core, self.scaling, self.ranks)


class TrainedFactors(FixedFactors):
    """The factors of a step."""

    __slots__ = ()
    _fixed = frozenset({"scaling", "ranks"})


def _factors(a: Array, b: Array, core: Array, scaling: float, ranks: Array) -> Factors:
    return Factors(a, b, core, scaling=scaling, ranks=ranks)


class FixedGroup(Dict[str, T]):
    """A group of tensors that a hook can only read. A copy can be edited."""

    def __init__(self, group: Mapping[str, T], name: str) -> None:
        super().__init__(group)
        self._name = name

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self._name} cannot be edited: the program would not see the change; edit a copy")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


Adapters = Dict[str, Factors]
Tensors = Dict[str, Array]


class _Group(Generic[T]):
    """An attribute that holds a group of tensors of the program's object."""

    def __init__(self, fixed: bool = False) -> None:
        """fixed: True: a hook can neither replace nor edit the group."""
        self.fixed = fixed

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, one: None, owner: type) -> _Group[T]: ...
    @overload
    def __get__(self, one: Any, owner: type) -> T: ...
    def __get__(self, one: Any, owner: type) -> Any:
        if one is None:
            return self
        if self.name not in one._groups:
            one._load(self.name, self.fixed)
        return one._groups[self.name]

    def __set__(self, one: Any, value: T) -> None:
        if self.fixed:
            raise _not_set(one, self.name)
        one._groups[self.name] = dict(value)  # type: ignore[call-overload]


class _Object:
    """An object of the program, or one that a hook has made."""

    _fixed: ClassVar[FrozenSet[str]] = frozenset()
    """Attributes that the program does not read back."""

    def __init__(self, call: Any = None, given: Optional[Mapping[str, Any]] = None) -> None:
        self._call = call
        self._of: Optional[int] = given["of"] if given is not None else None
        self._groups: Dict[str, Any] = {}
        self._given: Dict[str, Dict[str, Tuple[Any, Tensors]]] = {}
        """By group and key: what the program has given, and of factors their arrays."""

    def _load(self, name: str, fixed: bool) -> None:
        """Reads a group. Where threads do so at once, all get the same."""
        called = f"{type(self).__name__}.{name}" if fixed else ""
        group = {} if self._of is None else self._call.group(self._of, name, called)
        if fixed:
            self._groups.setdefault(name, FixedGroup(group, called))
            return
        given = self._given.setdefault(name, {key: _held(one) for key, one in group.items()})
        self._groups.setdefault(name, {key: one for key, (one, _) in given.items()})

    def _read_again(self, name: str) -> None:
        """Reads a group again that a hook has read, since a base method's hook may have changed it. Arrays of the
        program get the values in place, because the hook may hold them. What the hook has put in their place is
        replaced, and keeps its own values."""
        group = self._groups.get(name)
        if group is None:
            return
        fresh, given = self._call.group(self._of, name), self._given.setdefault(name, {})
        for key, value in fresh.items():
            one, arrays = given.get(key, (None, {}))
            if one is None or group.get(key) is not one:
                one = value
            elif isinstance(one, Factors):
                for factor, array in value.items():
                    setattr(one, factor, _renewed(getattr(one, factor), arrays.get(factor), array))
            else:
                one = _renewed(one, one, value)
            group[key], given[key] = one, _held(one)
        for key in group.keys() - fresh.keys():
            del group[key]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._fixed and name in self.__dict__:
            raise _not_set(self, name)
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _loaded(self, packer: Any) -> Dict[str, Any]:
        """The groups that were read or set, as places of their arrays."""
        return {name: places(group, packer) for name, group in self._groups.items()}

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {"of": self._of, "groups": self._loaded(packer)}


def _held(one: Any) -> Tuple[Any, Tensors]:
    """Factors and their arrays, or an array."""
    return one, dict(one.items()) if isinstance(one, Factors) else {}


def _renewed(array: Array, given: Array, fresh: Array) -> Array:
    """The array that has the values of `fresh`: `array`, if it is the one that the program gave and has their shape."""
    if array is None or array is not given or array.shape != fresh.shape or array.dtype != fresh.dtype:
        return fresh
    array[...] = fresh
    return array


def places(group: Mapping[str, Any], packer: Any) -> Dict[str, Any]:
    """A group as the places of its arrays."""
    encoded: Dict[str, Any] = {}
    for key, value in group.items():
        if not isinstance(key, str):
            raise TypeError(f"a name of a tensor is {key!r}, expected a str")
        if isinstance(value, Factors):
            encoded[key] = [packer.add(value.a), packer.add(value.b), packer.add(value.core), packer.add(value.ranks), float(value.scaling)]
        else:
            encoded[key] = packer.add(value)
    return encoded


def _generator(seed: int, hook: str, *numbers: int) -> Any:
    import numpy

    return numpy.random.Generator(numpy.random.PCG64([seed, zlib.crc32(hook.encode()), *(number + 3 for number in numbers)]))


@dataclass(frozen=True)
class Client:
    """What the server knows of a client."""

    id: int
    budget: float
    top_k: int
    rank: int
    examples: float
    trains: bool


@dataclass(frozen=True)
class Scale:
    """The scale of B A."""

    rank: int
    alpha: float
    mode: str

    def of(self, rank: int) -> float:
        """The scale at a rank."""
        return self.alpha / (self.rank if self.mode == "const_scale" else rank)


@dataclass(frozen=True)
class Site:
    """An adapted weight, or a stack of one per expert."""

    experts: int
    """0: one weight."""
    inputs: int
    outputs: int
    moe_layer: str
    """The key of its routing; "" where it is not a stack of experts."""
    role: str


@dataclass
class RoundView:
    """The participants of a round by ascending id, and their weights p_c."""

    round: int
    participants: List[Client]
    weights: List[float]

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {"round": self.round, "participants": [vars(client) for client in self.participants], "weights": [float(w) for w in self.weights]}


class Payload(_Object):
    """What travels between server and client. `base_delta` comes from the server only."""

    adapters = _Group[Adapters]()
    extras = _Group[Tensors]()
    base_delta = _Group[Adapters]()

    def __init__(self, adapters: Optional[Mapping[str, Factors]] = None, extras: Optional[Mapping[str, Array]] = None,
                 base_delta: Optional[Mapping[str, Factors]] = None, *, _call: Any = None, _given: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(_call, _given)
        for name, group in (("adapters", adapters), ("extras", extras), ("base_delta", base_delta)):
            if group is not None:
                self._groups[name] = dict(group)


Download = Payload


class ReceivedPayload(Payload):
    """What was received, read-only."""

    adapters = _Group[Adapters](fixed=True)
    extras = _Group[Tensors](fixed=True)
    base_delta = _Group[Adapters](fixed=True)


class ServerState(_Object):
    """The server's state between rounds. `adapters`, `extras` and `base_delta` are what broadcasts are built from, `memory` stays on the
    server, `fixed` is sent once and never trained, `base_change` is the sum of all base deltas, which the program
    keeps. A new ServerState has the last two of the old state, unless it sets `fixed`."""

    adapters = _Group[Adapters]()
    extras = _Group[Tensors]()
    base_delta = _Group[Adapters]()
    memory = _Group[Tensors]()
    fixed = _Group[Adapters]()
    base_change = _Group[Adapters](fixed=True)
    _fixed = frozenset({"round"})

    def __init__(self, call: Any = None, given: Optional[Mapping[str, Any]] = None) -> None:
        super().__init__(call, given)
        self.round: int = given["round"] if given is not None else 0


class FixedState(ServerState):
    """A read-only state."""

    adapters = _Group[Adapters](fixed=True)
    extras = _Group[Tensors](fixed=True)
    base_delta = _Group[Adapters](fixed=True)
    memory = _Group[Tensors](fixed=True)
    fixed = _Group[Adapters](fixed=True)


class LocalSetup(_Object):
    """What a client trains in a round, and how it routes."""

    adapters = _Group[Adapters]()
    extra_trainables = _Group[Tensors]()
    """Further trained tensors. phi is the same array here and in `modulation`."""
    modulation = _Group[Tensors]()
    """By mixture layer phi [E], added to scores of experts."""
    notes = _Group[Tensors]()
    """Arrays that last for the steps of a round."""

    def __init__(self, call: Any, given: Mapping[str, Any]) -> None:
        super().__init__(call, given)
        self.trainable: str = given["trainable"]
        """"ab", "b" or "core"."""
        self.top_k: int = given["top_k"]
        self.gate_norm: str = given["gate_norm"]
        self.num_candidates: int = given["num_candidates"]
        self.mode: str = given["mode"]
        """"candidate" or "preserve"."""
        self.raw_gates: bool = given["raw_gates"]
        """Gate weights follow the scores without phi."""

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {**super()._encoded(packer), "trainable": self.trainable, "top_k": self.top_k, "gate_norm": self.gate_norm,
                "num_candidates": self.num_candidates, "mode": self.mode, "raw_gates": self.raw_gates}


class FixedSetup(LocalSetup):
    """A read-only setup."""

    adapters = _Group[Adapters](fixed=True)
    extra_trainables = _Group[Tensors](fixed=True)
    modulation = _Group[Tensors](fixed=True)
    notes = _Group[Tensors](fixed=True)
    _fixed = frozenset({"trainable", "top_k", "gate_norm", "num_candidates", "mode", "raw_gates"})


class StepSetup(FixedSetup):
    """The setup of a client that trains: notes can be edited, the rest is read-only."""

    notes = _Group[Tensors]()


class Server(_Object):
    """What the server half may read beside its state."""

    start = _Group[Adapters](fixed=True)
    """The adapter that replaces fresh factors ([lora] init); empty for none."""
    _fixed = frozenset({"moe_layers", "num_experts", "max_top_k", "rank", "scale", "lr", "seed", "transport"})

    def __init__(self, call: Any, given: Mapping[str, Any]) -> None:
        super().__init__(call, given)
        self.moe_layers: List[str] = given["moe_layers"]
        self.num_experts: int = given["num_experts"]
        self.max_top_k: int = given["max_top_k"]
        self.rank: int = given["rank"]
        self.scale = Scale(**given["scale"])
        self.lr: float = given["lr"]
        self.seed: int = given["seed"]
        self.transport: str = given["transport"]
        self.random = _generator(self.seed, call.hook, given["round"])
        """A generator of numpy, seeded by the run's seed, the hook and the round."""

    @property
    def sites(self) -> Dict[str, Site]:
        """The adapted weights by name."""
        return sites_of(self._call)

    def gradient_sum(self, site: str, rows: int, *, pooled: bool = True) -> Array:
        """The gradient of the task loss with respect to a frozen weight, over rows of all clients. In `initialize` alone."""
        return self._call.tensor({"ask": "gradient_sum", "of": self._of, "site": site, "rows": rows, "pooled": pooled})


def sites_of(call: Any) -> Dict[str, Site]:
    """The adapted weights of a call."""
    roles = ("attention", "expert", "mlp", "router")
    return {name: Site(entry[0], entry[1], entry[2], entry[3], roles[entry[4]]) for name, entry in call.ask({"ask": "sites"})["answer"].items()}


class View(_Object):
    """What the client half may read, and the client's memory, which lasts over rounds."""

    memory = _Group[Tensors]()
    fixed = _Group[Adapters](fixed=True)
    base_change = _Group[Adapters](fixed=True)
    _fixed = frozenset({"client", "scale", "gate_norm", "round", "seed"})

    def __init__(self, call: Any, given: Mapping[str, Any], step: int = 0, batches: int = 0) -> None:
        super().__init__(call, given)
        self.client = Client(**given["client"])
        self.scale = Scale(**given["scale"])
        self.gate_norm: str = given["gate_norm"]
        self.round: int = given["round"]
        self.seed: int = given["seed"]
        self.random = _generator(self.seed, call.hook, self.round, self.client.id, step, batches)
        """A generator of numpy, seeded by the run's seed, the hook, the round, the client and the step."""

    @property
    def sites(self) -> Dict[str, Site]:
        """The adapted weights by name."""
        return sites_of(self._call)

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {"memory": places(self._groups["memory"], packer)} if "memory" in self._groups else {}


@dataclass
class RoutingCounts:
    """The routing of one mixture layer."""

    counts: Array
    """[E] int64: how often each expert was chosen."""
    tokens: int


class FixedCounts(RoutingCounts):
    """Read-only counts."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise _not_set(self, name)
        super().__setattr__(name, value)


class Routing(FixedCounts):
    """The routing of one mixture layer and one micro-batch."""

    def __init__(self, counts: Array, tokens: int, logits: Callable[[], Array]) -> None:
        super().__init__(counts, tokens)
        self._logits = logits

    @property
    def logits(self) -> Array:
        """[T, E] scores of the router, of the newest micro-batch in `extra_loss`."""
        return self._logits()


ROUTING = "Step.routing"


class _MicroBatches(Sequence[Mapping[str, Routing]]):
    """The routing of each micro-batch of a step, by layer."""

    def __init__(self, step: Step, tokens: List[Dict[str, int]]) -> None:
        self._call, self._of, self._tokens = step._call, step._of, tokens
        self._logits = step._logits
        self._known: Dict[int, Mapping[str, Routing]] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        if i not in self._known:
            counts = self._call.group(self._of, f"counts/{i}", ROUTING)
            routing = {layer: Routing(counts[layer], tokens, self._reader(i, layer))
                       for layer, tokens in self._tokens[i].items()}
            self._known.setdefault(i, FixedGroup(routing, ROUTING))
        return self._known[i]

    def _reader(self, i: int, layer: str) -> Callable[[], Array]:
        call, of, logits = self._call, self._of, self._logits

        def read() -> Array:
            if i not in logits:
                logits.setdefault(i, call.group(of, f"logits/{i}", ROUTING))
            return logits[i][layer]

        return read


class Step(_Object):
    """One optimiser step of a client. Gradients and parameters can be edited in `edit_gradients` and `edit_parameters`.
    After `super().hook()`, read again what you have put in place of one of their arrays."""

    parameters = _Group[Adapters]()
    """The trained factors by site; None where one is not trained."""
    gradients = _Group[Adapters]()
    extra_parameters = _Group[Tensors]()
    extra_gradients = _Group[Tensors]()
    _fixed = frozenset({"number", "lr", "view", "download", "setup", "routing"})

    def __init__(self, call: Any, given: Mapping[str, Any]) -> None:
        super().__init__(call, given)
        self.number: int = given["step"]
        """Steps of the round before this one."""
        self.lr: float = given["lr"]
        self.view = View(call, given["view"], self.number, len(given["tokens"]))
        self.download: Download = ReceivedPayload(_call=call, _given=given["download"])
        self.setup: LocalSetup = StepSetup(call, given["setup"])
        self._logits: Dict[int, Any] = {}
        self.routing: Sequence[Mapping[str, Routing]] = _MicroBatches(self, given["tokens"])
        """By micro-batch of the step so far, the routing of each mixture layer."""
        self._metrics: List[List[Any]] = []

    def add_metric(self, name: str, value: float, weight: float = 1.0) -> None:
        """Adds a value to the mean of `name` in the records of the round. Raises ValueError for a value that is not finite, a weight that
        is not positive, and a name that is not snake_case."""
        if not (math.isfinite(value) and math.isfinite(weight) and weight > 0):
            raise ValueError(f"metric {name} is {value!r} with weight {weight!r}, allowed: finite numbers, weights above 0")
        if not (name.isascii() and name.isidentifier() and name.islower()):
            raise ValueError(f"metric {name!r}, allowed: names in snake_case")
        self._metrics.append([name, float(value), float(weight)])

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {"groups": self._loaded(packer), "view": self.view._encoded(packer), **self._notes(packer)}

    def _notes(self, packer: Any) -> Dict[str, Any]:
        """The notes of the round, if they were read or set."""
        notes = self.setup._groups.get("notes")
        return {} if notes is None else {"notes": places(notes, packer)}


class LossStep(Step):
    """A step in `extra_loss` and `penalty`, which edit nothing."""

    parameters = _Group[Adapters](fixed=True)
    gradients = _Group[Adapters](fixed=True)
    extra_parameters = _Group[Tensors](fixed=True)
    extra_gradients = _Group[Tensors](fixed=True)


class Loss:
    """A loss by its value and its gradients: with respect to trained factors by site, to further trained tensors by name, and in
    `extra_loss` to router logits of the newest micro-batch by layer. What is left out has no gradient."""

    def __init__(self, value: float, adapters: Optional[Mapping[str, Factors]] = None, *, extras: Optional[Mapping[str, Array]] = None,
                 logits: Optional[Mapping[str, Array]] = None) -> None:
        if not math.isfinite(value):
            raise ValueError(f"the loss is {value!r}, expected a finite number")
        self.value = value
        self.adapters, self.extras, self.logits = dict(adapters or {}), dict(extras or {}), dict(logits or {})
        self.terms: List[int] = []

    def __add__(self, other: Union[Loss, float, None]) -> Loss:
        """The sum of both. None and 0, with which sum() begins, are no loss."""
        if other is None or (isinstance(other, (int, float)) and other == 0):
            return self
        if not isinstance(other, Loss):
            return NotImplemented
        both = [name for mine, theirs in ((self.adapters, other.adapters), (self.extras, other.extras), (self.logits, other.logits))
                for name in mine.keys() & theirs.keys()]
        if both:
            raise ValueError(f"both losses have a gradient of {', '.join(both)}: add the gradients")
        total = Loss(self.value + other.value, {**self.adapters, **other.adapters}, extras={**self.extras, **other.extras},
                     logits={**self.logits, **other.logits})
        total.terms = self.terms + other.terms
        return total

    __radd__ = __add__

    def _encoded(self, packer: Any) -> Dict[str, Any]:
        return {"terms": self.terms, "groups": {"of_adapters": places(self.adapters, packer), "of_extras": places(self.extras, packer),
                                                "of_logits": places(self.logits, packer)}}


class Upload(ReceivedPayload):
    """The upload of a client in `aggregate`, read-only."""

    _fixed = frozenset({"client", "steps"})

    def __init__(self, call: Any, given: Mapping[str, Any]) -> None:
        super().__init__(_call=call, _given=given)
        self.client = Client(**given["client"])
        self.steps: int = given["steps"]


WeightsOf = Callable[[Upload, float], Array]


class Uploads(_Object):
    """The uploads of a round, as sums or, where the class says `needs_individuals = True`, one by one."""

    _fixed = frozenset({"weights"})

    def __init__(self, call: Any, given: Mapping[str, Any]) -> None:
        super().__init__(call, given)
        self._size, self._each = given["size"], given["each"]
        self.weights: List[float] = given["weights"]
        self._list = [Upload(call, one) for one in given["list"]]

    def __len__(self) -> int:
        return int(self._size)

    def __iter__(self) -> Iterator[Upload]:
        self._require_each()
        return iter(self._list)

    def __getitem__(self, index: int) -> Upload:
        self._require_each()
        return self._list[index]

    def _require_each(self) -> None:
        if not self._each:
            raise TypeError("uploads are read one by one, but the class does not say needs_individuals = True")

    def _weights(self, weights: Optional[Sequence[float]]) -> List[float]:
        return [float(weight) for weight in (self.weights if weights is None else weights)]

    def mean(self, site: str, factor: str, weights: Union[None, Sequence[float], WeightsOf] = None) -> Array:
        """sum_c w_c theta_c of one factor, "a", "b" or "core". weights: None: p_c; or a function of an upload and its p_c that returns
        a weight per expert, [E] float64."""
        if callable(weights):
            return self._call.tensor({"ask": "mean", "of": self._of, "site": site, "factor": factor, "weights": self.weights,
                                      "by_expert": True}, weights)
        return self._call.tensor({"ask": "mean", "of": self._of, "site": site, "factor": factor, "weights": self._weights(weights)})

    def mean_extra(self, name: str, weights: Optional[Sequence[float]] = None) -> Array:
        """sum_c w_c of an extra tensor."""
        return self._call.tensor({"ask": "mean", "of": self._of, "extra": name, "weights": self._weights(weights)})

    def sum(self, part: WeightsOf, weights: Optional[Sequence[float]] = None) -> Array:
        """sum_c part(upload_c, w_c), the same to the bit in any order and on any number of ranks. A part may read the
        upload; it cannot ask for another sum, a mean or `super().aggregate()`."""
        return self._call.tensor({"ask": "sum", "of": self._of, "weights": self._weights(weights)}, part)

