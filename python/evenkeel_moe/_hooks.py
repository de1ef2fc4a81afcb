"""How arguments and results of each hook pass between the program and a class."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Type

from ._calls import Call
from ._objects import (Client, Factors, FixedCounts, FixedGroup, FixedSetup, FixedState, LocalSetup, Loss, LossStep,
                       Payload, ReceivedPayload, RoundView, RoutingCounts, Server, ServerState, Step, Uploads, View,
                       places)
from ._wire import Packer

__all__ = ["arguments_of", "base_result", "encoded", "given_to_base", "result_of"]


def _round(_: Call, given: Any) -> RoundView:
    return RoundView(given["round"], [Client(**one) for one in given["participants"]], given["weights"])


def _counts(call: Call, given: Any) -> Dict[str, RoutingCounts]:
    counts = call.group(given["of"], "counts", "counts")
    return FixedGroup({layer: FixedCounts(counts[layer], tokens) for layer, tokens in given["tokens"].items()}, "counts")


def _received(call: Call, given: Any) -> Payload:
    return ReceivedPayload(_call=call, _given=given)


def _state(call: Call, given: Any) -> ServerState:
    """A state. `aggregate` may edit and return the one that it gets."""
    return (ServerState if call.hook == "aggregate" else FixedState)(call, given)


def _step(call: Call, given: Any) -> Step:
    return (LossStep if call.hook in ("extra_loss", "penalty") else Step)(call, given)


READERS: Dict[str, Callable[[Call, Any], Any]] = {
    "server": Server, "state": _state, "view": View, "step": _step, "uploads": Uploads, "setup": FixedSetup, "round": _round,
    "client": lambda _, given: Client(**given), "download": _received, "upload": _received, "counts": _counts}


def arguments_of(call: Call, given: Mapping[str, Any]) -> Dict[str, Any]:
    """The arguments of a hook."""
    return {key: READERS[key](call, value) for key, value in given.items()}


def encoded(value: Any, packer: Packer) -> Any:
    """A view as the program reads it back."""
    return value._encoded(packer)


CHANGEABLE: Dict[str, Type[Any]] = {"state": ServerState, "round": RoundView, "client": Client, "download": Payload, "upload": Payload,
                                    "setup": LocalSetup, "counts": dict}
"""Arguments that a hook may build for `super().hook()`; others must be those it got."""


def given_to_base(call: Call, key: str, value: Any, packer: Packer) -> Any:
    """An argument of `super().hook()`. Raises TypeError for one that the base method cannot get."""
    if key not in CHANGEABLE:
        if value is not call.arguments[key]:
            raise TypeError(f"super().{call.hook}() takes the {key} that {call.hook} was called with, and no other object")
        return value._encoded(packer)
    if not isinstance(value, CHANGEABLE[key]):
        raise TypeError(f"super().{call.hook}() got a {type(value).__name__} as {key}, expected {CHANGEABLE[key].__name__}")
    if key == "client":
        return vars(value)
    return _encoded_counts(value, packer) if key == "counts" else value._encoded(packer)


def _encoded_counts(counts: Mapping[str, RoutingCounts], packer: Packer) -> Dict[str, Any]:
    return {"counts": places({layer: one.counts for layer, one in counts.items()}, packer),
            "tokens": {layer: one.tokens for layer, one in counts.items()}}


def base_result(call: Call, answer: Any, arguments: Mapping[str, Any]) -> Any:
    """What a base method's hook returned."""
    _read_again(call.hook, arguments)
    if call.hook in ("initialize", "aggregate"):
        return ServerState(call, answer)
    if call.hook in ("broadcast", "upload"):
        return Payload(_call=call, _given=answer)
    if call.hook == "prepare":
        return LocalSetup(call, answer)
    if call.hook == "diagnostics":
        return ServerState(call, answer).memory
    if call.hook == "pseudo_gradients":
        return Payload(_call=call, _given=answer).adapters
    if call.hook in ("extra_loss", "penalty"):
        loss = Loss(0.0)
        loss.terms.append(answer)
        return loss
    return None


def _read_again(hook: str, arguments: Mapping[str, Any]) -> None:
    """Reads again what a base method's hook may have changed of the arguments."""
    step = arguments.get("step")
    view = arguments.get("view") if step is None else step.view
    if view is not None:
        view._read_again("memory")
    if step is not None:
        step.setup._read_again("notes")
    if hook in ("edit_gradients", "edit_parameters"):
        for name in ("parameters", "gradients", "extra_parameters", "extra_gradients"):
            arguments["step"]._read_again(name)


def _wrong(result: Any, expected: str) -> TypeError:
    return TypeError(f"it returned {type(result).__name__}, expected {expected}")


def _object(result: Any, kind: Type[Any], packer: Packer) -> Any:
    if not isinstance(result, kind):
        raise _wrong(result, kind.__name__)
    return result._encoded(packer)


def _loss(call: Call, result: Any, packer: Packer) -> Any:
    if result is None:
        return None
    if call.library == "torch" and hasattr(result, "backward"):
        result = _differentiated(call.arguments["step"], result)
    return _object(result, Loss, packer)


def _differentiated(step: Step, value: Any) -> Loss:
    """The gradients of a torch scalar with respect to the parameters and logits that it was computed from."""
    leaves = torch_leaves(step)
    if not value.requires_grad:
        return Loss(float(value))
    value.backward()
    gradients = {site: Factors(*(getattr(getattr(factors, name), "grad", None) for name in ("a", "b", "core")))
                 for site, factors in leaves[0].items()}
    return Loss(float(value.detach()), {site: one for site, one in gradients.items() if one.items()},
                extras={name: leaf.grad for name, leaf in leaves[1].items() if leaf.grad is not None},
                logits={layer: leaf.grad for layer, leaf in leaves[2].items() if leaf.grad is not None})


def torch_leaves(step: Step) -> Any:
    """The tensors of a step that a torch loss is differentiated by, which were read."""
    newest = len(step.routing) - 1
    return step._groups.get("parameters", {}), step._groups.get("extra_parameters", {}), step._logits.get(newest, {})


def result_of(call: Call, result: Any, packer: Packer) -> Dict[str, Any]:
    """The message with the result of a hook. Raises TypeError for a result of another type."""
    call.check_fixed()
    hook, given = call.hook, call.arguments
    if hook in ("initialize", "aggregate"):
        return {"result": _object(result, ServerState, packer)}
    if hook == "broadcast":
        return {"result": _object(result, Payload, packer)}
    if hook in ("diagnostics", "pseudo_gradients"):
        if not isinstance(result, Mapping):
            raise _wrong(result, "dict")
        return {"result": places(result, packer)}
    if hook == "prepare":
        return {"result": {"setup": _object(result, LocalSetup, packer), "view": encoded(given["view"], packer)}}
    if hook == "upload":
        return {"result": {"payload": _object(result, Payload, packer), "view": encoded(given["view"], packer)}}
    if hook == "check_upload":
        return {"result": None}
    step = given["step"]
    message = {"view": encoded(step.view, packer), "metrics": step._metrics, **step._notes(packer)}
    if hook in ("extra_loss", "penalty"):
        return {"result": {**message, "loss": _loss(call, result, packer)}}
    if result is not None:
        raise _wrong(result, "None: gradients and parameters are edited in place")
    return {"result": {**message, "step": {"groups": step._loaded(packer)}}}
