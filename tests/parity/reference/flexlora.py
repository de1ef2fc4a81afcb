"""FlexLoRA (Bai et al., NeurIPS 2024): the mean of the products, cut by SVD to the rank each client can hold."""
import numpy as np

from . import common


def _orthonormal_rows(v_t, rank):
    """v_t [k, in] cut or extended by orthonormal rows to `rank`; what is beyond `in` rows is zero."""
    k, width = v_t.shape
    rows = np.zeros((max(rank, k), width))
    rows[:k] = v_t
    full = np.linalg.qr(v_t.T, mode="complete")[0]
    rows[k:width] = full[:, k:len(rows)].T
    return rows[:rank]


def _factors(b, a, rank):
    """(b [out, rank], a [rank, in], s): the singular values on the left, orthonormal rows on the right."""
    u, s, v_t = common.product_svd(b, a)
    a_r = _orthonormal_rows(v_t, rank)
    b_r = np.zeros((u.shape[0], rank))
    kept = min(rank, s.size)
    b_r[:, :kept] = u[:, :kept] * s[:kept]
    return b_r, a_r, s


def redistribute(b, a, rank):
    """Best rank-r factors of b @ a per module, and all singular values [.., min(out, in, R)]."""
    if b.ndim == 2:
        return _factors(b, a, rank)
    return tuple(np.stack(x) for x in zip(*[_factors(b_i, a_i, rank) for b_i, a_i in zip(b, a)]))


def aggregate(state, clients, weights, options):
    """dW = sum_c p_c s_c B_c A_c = U S V^T replaces the global update: A = V^T[:r], B = U[:, :r] S[:r] / s.

    r is max_rank, the scale s the one the state has.
    """
    sites, values = {}, {}
    for name in common.site_names(clients):
        largest = max(common.rank_of(c["sites"][name]) for c in clients)
        rank = options.get("max_rank", largest)
        scaling = state["sites"].get(name, {}).get("scaling")
        scaling = common.lora_scale(rank, options) if scaling is None else scaling
        b, a, values[name] = redistribute(*common.stack(clients, weights, name), rank)
        sites[name] = {"a": a, "b": b / scaling, "scaling": scaling}
    return {**state, "sites": sites, "singular_values": values}


def broadcast(state, rank, options):
    """The first r components, b divided by s_r = alpha / r, so that s_r B A is the best rank-r approximation of dW."""
    s_r, sites = common.lora_scale(rank, options), {}
    for name, site in state["sites"].items():
        cut = common.with_rank(site, rank)
        sites[name] = {"a": cut["a"], "b": cut["b"] * (site["scaling"] / s_r), "scaling": s_r}
    return sites
