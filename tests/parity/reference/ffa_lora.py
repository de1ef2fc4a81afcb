"""FFA-LoRA (Sun et al., ICLR 2024): A is drawn once, common and frozen; only B is trained and averaged."""
import numpy as np

from . import common


def trainable_gradients(gradients):
    """The gradients an optimiser may see: those of B. A has none, so weight decay cannot reach it either."""
    return {name: {"b": g["b"]} for name, g in gradients.items()}


def aggregate(state, clients, weights, options):
    """B = sum_c p_c B_c, exact because sum_c p_c B_c A = B A. A stays as it is; a client with another A is an error."""
    for client in clients:
        for name, site in client["sites"].items():
            if "a" in site and not np.array_equal(site["a"], state["sites"][name]["a"]):
                raise ValueError(f"{name}: a client's A differs from the common one")
    return {**state, "sites": common.mean_factors(state, clients, weights, keys=("b",))}
