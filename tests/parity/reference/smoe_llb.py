"""SMoE-LLB: load-balancing loss (Fedus et al. 2022) and router z-loss (Zoph et al. 2022); FedAvg on the server."""
import numpy as np

from . import common


def aggregate(state, clients, weights, options):
    """FedAvg of both factors."""
    return {**state, "sites": common.mean_factors(state, clients, weights)}


def routed_counts(logits, top_k):
    """a_i: how many tokens of logits [T, M] have expert i among their K largest."""
    return common.indicator(common.top_k(logits, top_k), logits.shape[-1]).sum(axis=0)


def balance_loss(logits, top_k, norm):
    """(L_B, dL_B/dlogits) of tokens [T, M]: L_B = M sum_i f_i P_i, P_i = mean_t p_ti, f_i constant.

    f_i = a_i / (T K) for `per_layer_k` (1 at balance), a_i / T for `hf` (K at balance).
    d/ds_tj = M / T * p_tj (f_j - sum_i f_i p_ti).
    """
    tokens, experts = logits.shape
    if tokens == 0:
        return 0.0, np.zeros_like(logits)
    f = routed_counts(logits, top_k) / (tokens * (top_k if norm == "per_layer_k" else 1))
    p = common.softmax(logits)
    gradient = experts / tokens * p * (f - (p * f).sum(axis=-1, keepdims=True))
    return float(experts * (f * p.mean(axis=0)).sum()), gradient


def z_loss(logits):
    """(L_z, dL_z/dlogits): L_z = mean_t (ln sum_i exp s_ti)^2, d/ds_tj = 2 lse_t p_tj / T."""
    tokens = logits.shape[0]
    if tokens == 0:
        return 0.0, np.zeros_like(logits)
    lse = common.logsumexp(logits)
    return float((lse ** 2).mean()), 2 * lse * common.softmax(logits) / tokens


def _balance(rows, top_k, norm):
    """(value, gradients) over layers: the mean of the layers, or for `hf` one loss of all layers' tokens together."""
    if norm in ("per_layer_k", "sum"):
        parts = [balance_loss(x, top_k, "per_layer_k") for x in rows]
        return sum(v for v, _ in parts) / len(rows), [g / len(rows) for _, g in parts]
    if norm != "hf":
        raise ValueError(f"llb_norm: {norm}")
    value, gradient = balance_loss(np.concatenate(rows), top_k, norm)
    return value, np.split(gradient, np.cumsum([len(x) for x in rows])[:-1])


def loss(logits, top_k, options, mask=None):
    """llb_coef * L_B + z_coef * mean_l L_z over raw router logits {layer: [T, M]}, times the number of layers for
    llb_norm "sum"; mask [T], true where a token counts.

    Returns (value, gradients {layer: [T, M]}, {"balance": L_B, "z": mean_l L_z}); masked tokens have no gradient.
    """
    layers = list(logits)
    keep = {n: np.ones(len(logits[n]), bool) if mask is None else np.asarray(mask, bool) for n in layers}
    rows = [logits[n][keep[n]] for n in layers]
    balance, g_balance = _balance(rows, top_k, options.get("llb_norm", "per_layer_k"))
    z_parts = [z_loss(x) for x in rows]
    z = sum(v for v, _ in z_parts) / len(layers)
    times = len(layers) if options.get("llb_norm") == "sum" else 1
    c_b, c_z = times * options.get("llb_coef", 1e-2), times * options.get("z_coef", 1e-3)
    gradients = {}
    for name, g_b, (_, g_z) in zip(layers, g_balance, z_parts):
        gradients[name] = np.zeros_like(logits[name])
        gradients[name][keep[name]] = c_b * g_b + c_z * g_z / len(layers)
    return c_b * balance + c_z * z, gradients, {"balance": balance, "z": z}
