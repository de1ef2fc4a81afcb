"""The server momentum of docs/tutorial-new-method.md, with a factor of the round's change.

    V' = momentum V + step (sum_c p_c Theta_c - Theta)        Theta' = Theta + V'        V = 0 before the first round

Study 0006 asks whether this gains what UB-SMoE's pseudo-gradients gain.
"""

from typing import Annotated

import evenkeel_moe as ek


class ServerMomentum(ek.Method):
    step: Annotated[float, "factor of the mean change of a round, above 0"] = 1.0
    momentum: Annotated[float, "share of the server's last move it repeats, 0 .. 1"] = 0.9

    def check_options(self):
        if self.step <= 0 or not 0 <= self.momentum <= 1:
            raise ValueError(f"step is {self.step}, momentum {self.momentum}, allowed: above 0, 0 .. 1")

    def aggregate(self, server, state, round, uploads):
        new = super().aggregate(server, state, round, uploads)
        for site, factors in new.adapters.items():
            for name, old in state.adapters[site].items():
                theta, last = getattr(factors, name), state.memory.get(f"{site}.{name}", 0)
                move = self.momentum * last + self.step * (theta - old)
                theta[...] = old + move
                new.memory[f"{site}.{name}"] = move
        return new
