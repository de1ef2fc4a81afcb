"""SCAFFOLD, option II, for optimizer = { name = "sgd" }. Karimireddy et al., ICML 2020.

    client   g + c - c_i in every step,   c_i' = c_i - c + (theta_0 - theta) / sum lr
    server   c' = c + (participants / clients) mean_i (c_i' - c_i)
"""

from typing import Annotated

import numpy as np

import evenkeel_moe as ek


class Scaffold(ek.Method):
    paper = "Karimireddy et al.: SCAFFOLD, ICML 2020, arXiv:1910.06378"
    sends = "A and B of every adapted weight, and the change of its control variate of both"
    clients: Annotated[int, "number of clients of the run"] = 4

    def initialize(self, server):
        state = super().initialize(server)
        state.extras = {f"{site}.control_{name}": np.zeros_like(theta) for site, one in state.adapters.items() for name, theta in one.items()}
        return state

    def broadcast(self, state, client, round):
        return ek.Payload(state.adapters, state.extras if client.trains else {})

    def edit_gradients(self, step):
        step.setup.notes["lr"] = step.setup.notes.get("lr", 0.0) + np.float64(step.lr)
        for key, control in step.download.extras.items():
            site, name = key.rsplit(".control_", 1)
            getattr(step.gradients[site], name)[...] += control - step.view.memory.get(key, 0)

    def upload(self, download, setup, counts, view):
        payload, rate = super().upload(download, setup, counts, view), np.float32(setup.notes.get("lr", np.inf))
        for key in [key for key in download.extras if key.rsplit(".control_", 1)[0] in payload.adapters]:
            begin, end = (getattr(part.adapters[key.rsplit(".control_", 1)[0]], key[-1]) for part in (download, payload))
            payload.extras[key] = (begin - end) / rate - download.extras[key]
            view.memory[key] = view.memory.get(key, 0) + payload.extras[key]
        return payload

    def aggregate(self, server, state, round, uploads):
        new, share = super().aggregate(server, state, round, uploads), 1 / self.clients
        new.extras = {key: old + uploads.mean_extra(key, [share] * len(uploads)) for key, old in state.extras.items()}
        return new
