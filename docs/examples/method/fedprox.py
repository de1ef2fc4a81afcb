"""FedProx: clients stay near what they received. Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020.

    client   L + mu/2 |theta - theta_0|^2
"""

from typing import Annotated

import evenkeel_moe as ek


class FedProx(ek.Method):
    paper = "Li et al.: Federated Optimization in Heterogeneous Networks, MLSys 2020, arXiv:1812.06127"
    mu: Annotated[float, "weight of the distance to the received adapter, 0 or more"] = 0.01

    def check_options(self):
        if self.mu < 0:
            raise ValueError(f"mu is {self.mu}, allowed: 0 or more")

    def edit_gradients(self, step):
        for site, gradients in step.gradients.items():
            for name, gradient in gradients.items():
                begin = getattr(step.download.adapters[site], name)
                gradient += self.mu * (getattr(step.parameters[site], name) - begin)
