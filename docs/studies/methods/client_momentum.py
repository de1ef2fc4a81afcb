"""Plain averaging whose clients repeat a share of the server's last move, spread over their steps: the momentum of FedCM (Xu et al.
2021, arXiv:2106.10874), added to AdamW's steps instead of mixed into the gradient.

    client   theta += momentum V / steps, after the optimiser, in every step       V = 0 before the first round
    server   V' = Theta' - Theta

UB-SMoE's pseudo-gradients are this for experts that are idle, with a clip and another share. Study 0007 compares them.
"""

from typing import Annotated

import numpy as np

import evenkeel_moe as ek


class ClientMomentum(ek.Method):
    sends = "A and B of every adapted weight; the server sends its last move of both too"
    momentum: Annotated[float, "share of the server's last move that a client repeats in a round, 0 .. 1"] = 0.5
    steps: Annotated[int, "optimiser steps of a client in a round, 1 or more"] = 1

    def check_options(self):
        if self.steps < 1 or not 0 <= self.momentum <= 1:
            raise ValueError(f"steps is {self.steps}, momentum {self.momentum}, allowed: 1 or more, 0 .. 1")

    def initialize(self, server):
        state = super().initialize(server)
        state.extras = {f"{site}.move_{name}": np.zeros_like(theta) for site, one in state.adapters.items() for name, theta in one.items()}
        return state

    def broadcast(self, state, client, round):
        return ek.Payload(state.adapters, state.extras if client.trains else {})

    def edit_parameters(self, step):
        share = np.float32(self.momentum / self.steps)
        for key, move in step.download.extras.items():
            site, name = key.rsplit(".move_", 1)
            getattr(step.parameters[site], name)[...] += share * move

    def upload(self, download, setup, counts, view):
        return ek.Payload(super().upload(download, setup, counts, view).adapters)

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for key in state.extras:
            site, name = key.rsplit(".move_", 1)
            new.extras[key] = getattr(new.adapters[site], name) - getattr(state.adapters[site], name)
        return new
