"""FedEx-LoRA (Singhal et al., ACL 2025): FedAvg of the factors, and what that loses goes into the base."""
from . import common


def residual(clients, weights, name):
    """sum_c p_c B_c A_c - (sum_c p_c B_c)(sum_c p_c A_c) [*, out, in], not yet scaled; a covariance of B and A."""
    p = common.normalise(weights)
    pairs = [c["sites"][name] for c in clients]
    mean_a = common.weighted_sum([s["a"] for s in pairs], p)
    mean_b = common.weighted_sum([s["b"] for s in pairs], p)
    return common.weighted_sum([s["b"] @ s["a"] for s in pairs], p) - mean_b @ mean_a


def residual_factors(clients, weights, name):
    """(b, a) of rank C r with b @ a = sum_c p_c (B_c - Bbar)(A_c - Abar), the same residual in covariance form."""
    p = common.normalise(weights)
    pairs = [c["sites"][name] for c in clients]
    centred = [{"a": s["a"] - common.weighted_sum([x["a"] for x in pairs], p),
                "b": s["b"] - common.weighted_sum([x["b"] for x in pairs], p), "scaling": 1.0} for s in pairs]
    return common.stack([{"sites": {name: s}} for s in centred], weights, name)


def aggregate(state, clients, weights, options):
    """A = sum p_c A_c, B = sum p_c B_c, W <- W + s * residual: then W + s B A is the exact mean of the clients."""
    sites = common.mean_factors(state, clients, weights)
    change = {name: site["scaling"] * residual(clients, weights, name) for name, site in sites.items()}
    return {**state, "sites": sites, **common.add_to_base(state, change)}
