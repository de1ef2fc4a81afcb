"""HetLoRA (Cho et al., EMNLP 2024): zero-padded factors, weights from the norms of the products, ranks that shrink."""
import math

import numpy as np

from . import common


def _unit(site, scaling):
    """Unit-scale factors: sqrt(s) into both."""
    root = math.sqrt(scaling)
    return {"a": root * site["a"], "b": root * site["b"]}


def _rescale(unit, scaling):
    """Unit-scale factors as a site of the given scale: sqrt(s) out of both."""
    root = math.sqrt(scaling)
    return {"a": unit["a"] / root, "b": unit["b"] / root, "scaling": scaling}


def squared_norm(site):
    """||B A||_F^2 = sum of (B^T B) * (A A^T) elementwise, over all experts: r x r only."""
    a, b = site["a"], site["b"]
    return float(((common.transpose(b) @ b) * (a @ common.transpose(a))).sum())


def scores(clients):
    """S_c = sqrt(sum over modules of ||s_c B_c A_c||_F^2): one number per client."""
    return np.array([math.sqrt(max(0.0, sum(squared_norm(_unit(site, common.scaling_of(c, name)))
                                            for name, site in c["sites"].items()))) for c in clients])


def norm_weights(values):
    """w_c = S_c / sum S; equal weights when every score is zero."""
    return values / values.sum() if values.sum() > 0 else np.full(values.size, 1 / values.size)


def aggregate(state, clients, weights, options):
    """A = sum w_c pad(A_c), B = sum w_c pad(B_c) in unit scale. Data-set weights are not used by this method."""
    s = scores(clients)
    w, sites = norm_weights(s), {}
    for name in common.site_names(clients):
        rank = options.get("max_rank", common.rank_of(state["sites"][name]))
        padded = [common.with_rank(_unit(c["sites"][name], common.scaling_of(c, name)), rank) for c in clients]
        mean = {k: common.weighted_sum([x[k] for x in padded], w) for k in ("a", "b")}
        sites[name] = _rescale(mean, state["sites"][name]["scaling"])
    ranks = [c.get("rank", common.rank_of(next(iter(c["sites"].values())))) for c in clients]
    return {**state, "sites": sites, "scores": s, "norm_weights": w, "ranks": ranks}


def broadcast(state, rank, options):
    """The first r rows of A and columns of B of the unit-scale factors, divided by sqrt(s_r)."""
    s_r = common.lora_scale(rank, options)
    return {name: _rescale(common.with_rank(_unit(site, site["scaling"]), rank), s_r)
            for name, site in state["sites"].items()}


def tail_start(rank, options):
    """q = floor(gamma r): rounding instead would leave no tail for r <= 50."""
    return math.floor(options.get("het_gamma", 0.99) * rank)


def _tail_norms(site, start):
    """(||A[q:]||_F, ||B[:, q:]||_F), each [..] per module."""
    a, b = site["a"][..., start:, :], site["b"][..., :, start:]
    return np.sqrt((a ** 2).sum(axis=(-1, -2))), np.sqrt((b ** 2).sum(axis=(-1, -2)))


def tail_product(sites, rank, options):
    """sum over modules of ||B[:, q:]||_F ||A[q:]||_F."""
    norms = [_tail_norms(site, tail_start(rank, options)) for site in sites.values()]
    return float(sum((n_a * n_b).sum() for n_a, n_b in norms))


def tail_regulariser(sites, rank, options):
    """lambda * tail_product and its gradient {site: {a, b}}; a zero norm contributes a zero subgradient."""
    start, strength, gradients = tail_start(rank, options), options.get("het_lambda", 1e-3), {}
    for name, site in sites.items():
        n_a, n_b = (n[..., None, None] for n in _tail_norms(site, start))
        g_a, g_b = np.zeros_like(site["a"]), np.zeros_like(site["b"])
        g_a[..., start:, :] = strength * site["a"][..., start:, :] * np.divide(n_b, n_a, where=n_a > 0,
                                                                               out=np.zeros_like(n_a))
        g_b[..., :, start:] = strength * site["b"][..., :, start:] * np.divide(n_a, n_b, where=n_b > 0,
                                                                               out=np.zeros_like(n_b))
        gradients[name] = {"a": g_a, "b": g_b}
    return strength * tail_product(sites, rank, options), gradients


def prune(before, after, rank, options):
    """(sites, rank) to upload: if the tail product fell (strictly) in training, r <- max(r_min, floor(gamma r)).

    The factors are cut and keep the scale they were trained with, so what remains of the product is unchanged.
    """
    if not tail_product(after, rank, options) < tail_product(before, rank, options):
        return after, rank
    kept = max(options.get("het_rank_min", 1), tail_start(rank, options))
    kept = min(kept, rank)
    return {name: common.with_rank(site, kept) for name, site in after.items()}, kept
