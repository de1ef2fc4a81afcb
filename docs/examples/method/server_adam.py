"""FedAdam: the server takes Adam steps. Reddi et al., "Adaptive Federated Optimization", ICLR 2021.

    server   d = mean - Theta,  m = b1 m + (1 - b1) d,  v = b2 v + (1 - b2) d^2,  Theta' = Theta + lr m / (sqrt(v) + tau)
"""

from typing import Annotated

import numpy as np

import evenkeel_moe as ek


class ServerAdam(ek.Method):
    paper = "Reddi et al.: Adaptive Federated Optimization, ICLR 2021, arXiv:2003.00295"
    lr: Annotated[float, "learning rate of the server, above 0"] = 0.01
    beta1: Annotated[float, "share of the last first moment, 0 .. 1"] = 0.9
    beta2: Annotated[float, "share of the last second moment, 0 .. 1"] = 0.99
    tau: Annotated[float, "added to the root of the second moment, above 0"] = 1e-3

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for site, factors in new.adapters.items():
            for name, mean in factors.items():
                theta, m, v = getattr(state.adapters[site], name), f"{site}.{name}.m", f"{site}.{name}.v"
                move = mean - theta
                new.memory[m] = self.beta1 * state.memory.get(m, np.zeros_like(move)) + (1 - self.beta1) * move
                new.memory[v] = self.beta2 * state.memory.get(v, np.zeros_like(move)) + (1 - self.beta2) * move**2
                setattr(factors, name, theta + self.lr * new.memory[m] / (np.sqrt(new.memory[v]) + self.tau))
        return new
