"""FLoRIST (Ramesh and Dass 2025, Algorithm 1): SVD of the stacked factors in compact space, cut at an energy share."""
import numpy as np

from . import common


def compact_svd(b, a):
    """SVD of b @ a through both thin SVDs: b = U_B S_B V_B^T, a = U_A S_A V_A^T, P = S_B V_B^T U_A S_A = U_P S V_P^T.

    Returns (U_B U_P, S, V_P^T V_A^T) with the sign rule of `common.fix_signs`.
    """
    u_b, s_b, v_b = np.linalg.svd(b, full_matrices=False)
    u_a, s_a, v_a = np.linalg.svd(a, full_matrices=False)
    u_p, s, v_p = np.linalg.svd((s_b[:, None] * v_b) @ (u_a * s_a), full_matrices=False)
    u, v_t = common.fix_signs(u_b @ u_p, v_p @ v_a)
    return u, s, v_t


def energy_rank(s, tau, max_rank=None):
    """Smallest p with sum_{i<=p} S_i^2 >= tau sum S_i^2; 0 for a zero update, the numerical rank for tau = 1.

    A cumulative sum of squares cannot see values below 1e-8 of the largest, hence the separate rule for tau = 1.
    """
    if s.size == 0 or s[0] == 0:
        return 0
    rank = int((s > s[0] * s.size * np.finfo(np.float64).eps).sum())
    energy = np.cumsum(s ** 2)
    reached = energy >= tau * energy[-1] * (1 - 1e-12)
    p = rank if tau >= 1 or not reached.any() else min(rank, int(np.argmax(reached)) + 1)
    return min(p, max_rank) if max_rank else p


def _truncate(b, a, options):
    """(b_g [out, p], a_g [p, in], p) of one module: all singular values on the left."""
    u, s, v_t = compact_svd(b, a)
    p = energy_rank(s, options.get("florist_tau", 0.9), options.get("florist_max_rank"))
    return u[:, :p] * s[:p], v_t[:p], p


def truncated_stack(clients, weights, name, options):
    """The global factors of one site, scale 1, with "p": an int, or [E] when stacked (zero-padded to the largest)."""
    b, a = common.stack(clients, weights, name)
    if b.ndim == 2:
        b_g, a_g, p = _truncate(b, a, options)
        return {"a": a_g, "b": b_g, "scaling": 1.0, "p": p}
    pairs = [_truncate(b_i, a_i, options) for b_i, a_i in zip(b, a)]
    p = np.array([q for _, _, q in pairs])
    padded = [common.with_rank({"a": a_i, "b": b_i}, p.max()) for b_i, a_i, _ in pairs]
    return {"a": np.stack([s["a"] for s in padded]), "b": np.stack([s["b"] for s in padded]), "scaling": 1.0, "p": p}


def broadcast(state, rank, options):
    """Code mode: the global factors cut or zero-padded to a client's rank; they contain the scale, so theirs is 1."""
    return {name: {k: v for k, v in common.with_rank(site, rank).items() if k != "p"}
            for name, site in state["sites"].items()}


def aggregate(state, clients, weights, options):
    """B_g = (U_B U_P)[:, :p] S_p, A_g = (V_P^T V_A^T)[:p], p per module and expert in "p".

    `paper`: every client merges B_g A_g into its base and starts anew; "sites" is empty, "broadcast" is what was sent.
    `code`: B_g, A_g are the adapters the clients go on training; the base never changes.
    """
    sent = {name: truncated_stack(clients, weights, name, options) for name in common.site_names(clients)}
    new = {**state, "p": {name: site["p"] for name, site in sent.items()}}
    mode = options.get("florist_mode", "paper")
    if mode == "code":
        return {**new, "sites": sent}
    if mode != "paper":
        raise ValueError(f"florist_mode: {mode}")
    change = {name: common.delta(site) for name, site in sent.items()}
    return {**new, "sites": {}, "broadcast": sent, **common.add_to_base(state, change)}
