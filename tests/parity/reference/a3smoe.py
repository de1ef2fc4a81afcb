"""A3SMoE (after FLAME, arXiv 2506.16600): expert factors averaged by how often each client used the expert."""
import numpy as np

from . import common


def activation_weights(counts, tokens, weights, temperature=1.0):
    """w_ci = p_c f_ci^t / sum_c' p_c' f_c'i^t with f_ci = a_ci / n_c. counts [C, E], tokens [C] -> [C, E].

    For f_ci = a_ci / (n_c K_c), pass n_c K_c as tokens.

    A column of zeros marks an expert that no client used. t = 0 gives p_c for every expert (0^0 = 1).
    """
    p = common.normalise(weights)
    counts, tokens = np.asarray(counts, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    if temperature == 0:
        return np.repeat(p[:, None], counts.shape[1], axis=1)
    share = np.divide(counts, tokens[:, None], where=tokens[:, None] > 0, out=np.zeros_like(counts))
    peak = share.max(axis=0, keepdims=True)
    share = np.divide(share, peak, where=peak > 0, out=np.zeros_like(share))
    raw = p[:, None] * share ** temperature
    total = raw.sum(axis=0, keepdims=True)
    return np.divide(raw, total, where=total > 0, out=np.zeros_like(raw))


def output_scale(top_k, options):
    """Factor on the combined expert output, `a3_rescaler`: `fixed` K_max / K_c; `off` 1; `learn` starts from 1."""
    return options.get("k_max", 8) / top_k if options.get("a3_rescaler", "off") == "fixed" else 1.0


def _expert_mean(site, pairs, w, p, options):
    """Factors of one stacked site under the weights w [C, E]."""
    unused = (w.sum(axis=0) == 0)[:, None, None]
    keep, mean = options.get("a3_unused", "keep"), {}
    for k in ("a", "b"):
        used = common.weighted_sum([x[k] for x in pairs], w[:, :, None, None])
        idle = site[k] if keep == "keep" else common.weighted_sum([x[k] for x in pairs], p)
        mean[k] = np.where(unused, idle, used)
    return mean


def aggregate(state, clients, weights, options):
    """Theta_i = sum_c w_ci Theta_ci on stacked sites, FedAvg elsewhere.

    An expert nobody used keeps its global factors (`a3_unused`: `keep`), or takes their mean (`mean`).
    """
    p, sites = common.normalise(weights), common.mean_factors(state, clients, weights)
    for name, site in state["sites"].items():
        if not common.is_stacked(site):
            continue
        layer = options["site_layer"][name]
        per = [c["top_k"] if options.get("a3_frequency") == "per_selection" else 1 for c in clients]
        w = activation_weights([c["counts"][layer] for c in clients], [c["tokens"][layer] * k for c, k in zip(clients, per)],
                               weights, options.get("a3_temp", 1.0))
        sites[name].update(_expert_mean(site, [c["sites"][name] for c in clients], w, p, options))
    return {**state, "sites": sites}
