"""Plain averaging with an offset phi of router scores for each K: UB-SMoE's dynamic modulated routing, changed in three ways.

    server   u^K_i = share of tokens of clients with K that chose expert i,   phi~ = width sd tanh((K / E) / (u^K_i + eps) - 1)
             phi^K' = (1 - momentum) phi~ + momentum phi^K
    client   adds phi^K to its K + reach highest scores, so that experts can enter the selection as well as leave it

sd is the standard deviation of a token's scores, so phi is as wide as what it competes with. Study 0005 tells what comes of it.
"""

from typing import Annotated

import numpy as np

import evenkeel_moe as ek

EPSILON = 1e-8


class BudgetPhi(ek.Method):
    family, needs_experts, gate_norm = "sparsity", True, "renorm_selected"
    sends = "A and B of every adapted weight, how many tokens chose each expert, and the spread of router scores by layer"
    reach: Annotated[int, "experts beyond K whose scores get phi, 0 or more"] = 8
    width: Annotated[float, "largest magnitude of phi, in standard deviations of a token's scores, 0 or more"] = 1.0
    momentum: Annotated[float, "share of the last phi that is kept, 0 .. 1"] = 0.9

    def check_options(self):
        if self.reach < 0 or self.width < 0 or not 0 <= self.momentum <= 1:
            raise ValueError(f"reach is {self.reach}, width {self.width}, momentum {self.momentum}, allowed: 0 or more, 0 or more, 0 .. 1")

    # --- client ---

    def prepare(self, download, view):
        setup = super().prepare(download, view)
        setup.mode = "candidate"
        for name, phi in download.extras.items():
            setup.modulation[name.removesuffix(".phi")] = phi.copy()
            setup.num_candidates = min(view.client.top_k + self.reach, len(phi))
        return setup

    def extra_loss(self, step):
        """Measures the spread of the scores in the first step of a round, and adds no loss."""
        if not step.setup.notes:
            for layer, routing in step.routing[-1].items():
                step.setup.notes[layer] = routing.logits.std(1).mean()

    def upload(self, download, setup, counts, view):
        payload = super().upload(download, setup, counts, view)
        for layer, routing in counts.items():
            payload.extras[f"{layer}.spread"] = np.array(setup.notes.get(layer, 0), "f4")
            payload.extras[f"{layer}.used"] = (routing.counts / max(routing.tokens, 1)).astype("f4")
        return payload

    # --- server ---

    def initialize(self, server):
        state = super().initialize(server)
        for layer in server.moe_layers:
            for k in range(1, server.max_top_k + 1):
                state.memory[f"{layer}.phi.{k}"] = np.zeros(server.num_experts, "f4")
        return state

    def broadcast(self, state, client, round):
        payload, end = super().broadcast(state, client, round), f".phi.{client.top_k}"
        payload.extras = {name.removesuffix(end) + ".phi": phi for name, phi in state.memory.items() if name.endswith(end)}
        return payload

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for k in {client.top_k for client in round.participants}:
            share = sum(weight for weight, client in zip(round.weights, round.participants) if client.top_k == k)
            for layer in server.moe_layers:
                used = uploads.sum(lambda upload, weight: upload.extras[f"{layer}.used"].astype("f8") * weight * (upload.client.top_k == k))
                pull = np.tanh(k / len(used) / (used / share + EPSILON) - 1)
                phi, spread = new.memory[f"{layer}.phi.{k}"], uploads.mean_extra(f"{layer}.spread")
                phi[...] = (1 - self.momentum) * self.width * spread * pull + self.momentum * phi
        return new
