"""FedAvgM on LoRA factors, and classes that fail in one way each."""

import os
import signal
import time
from typing import Annotated

import numpy

import evenkeel_moe as ek


class ServerMomentum(ek.Method):
    """The server repeats a share of its last move."""

    momentum: Annotated[float, "share of the server's last move it repeats, 0 .. 1"] = 0.9

    def check_options(self):
        if not 0 <= self.momentum <= 1:
            raise ValueError(f"momentum is {self.momentum}, allowed: 0 .. 1")

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for site, factors in new.adapters.items():
            for name, old in state.adapters[site].items():
                theta, velocity = getattr(factors, name), state.memory.get(f"{site}.{name}.velocity")
                if velocity is not None:
                    theta += numpy.float32(self.momentum) * velocity
                new.memory[f"{site}.{name}.velocity"] = theta - old
        return new

    def diagnostics(self, state):
        return {"velocity_norm": numpy.float64(sum(float((v.astype("f8") ** 2).sum()) for v in state.memory.values()) ** 0.5)}


class Raises(ek.Method):
    def aggregate(self, server, state, round, uploads):
        if state.round == 1:
            return {}["missing"]
        return super().aggregate(server, state, round, uploads)


class Killed(Raises):
    def aggregate(self, server, state, round, uploads):
        if state.round == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().aggregate(server, state, round, uploads)


class Hangs(Raises):
    seconds = 1.0

    def aggregate(self, server, state, round, uploads):
        if state.round == 1:
            time.sleep(100)
        return super().aggregate(server, state, round, uploads)


class _Edits(ek.Method):
    """Changes one value of the second round's state."""

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        if state.round == 1:
            site = next(iter(new.adapters))
            self.edit(new, site, new.adapters[site])
        return new


class WrongShape(_Edits):
    def edit(self, new, site, factors):
        factors.a = factors.a[:, :-1]


class WrongType(_Edits):
    def edit(self, new, site, factors):
        factors.b = factors.b.astype("f8")


class WrongName(_Edits):
    def edit(self, new, site, factors):
        new.adapters["model.layers.9.nothing"] = factors


class NotFinite(_Edits):
    def edit(self, new, site, factors):
        factors.b[0, 0] = numpy.nan


class MemoryNotFinite(_Edits):
    def edit(self, new, site, factors):
        new.memory["value"] = numpy.array([1.0, numpy.inf])


class Returns(ek.Method):
    def aggregate(self, server, state, round, uploads):
        super().aggregate(server, state, round, uploads)
        return None if state.round == 1 else state


class OneByOne(ek.Method):
    """Reads single uploads without saying so."""

    def aggregate(self, server, state, round, uploads):
        return [upload.steps for upload in uploads]


class KeepsNoGradient(ek.Method):
    def edit_gradients(self, step):
        step.gradients.clear()


class UsesMoreExperts(ek.Method):
    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.top_k = 8
        return setup


class UsesAnyNumberOfExperts(ek.Method):
    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.top_k = 0
        return setup


class OneWeight(ek.Method):
    def aggregate(self, server, state, round, uploads):
        uploads.mean(next(iter(state.adapters)), "a", [1.0])
        return state


class ScalesByNothing(ek.Method):
    def prepare(self, download, view):
        setup = super().prepare(download, view)
        next(iter(setup.adapters.values())).scaling = numpy.float64("nan")
        return setup
