"""Creates random clients of one round for the tests of the reference."""
import numpy as np

from . import common

EXPERTS, OUT, WIDTH = 4, 3, 5
OPTIONS = {"alpha": 6.0, "max_rank": 6, "lr": 0.01, "site_layer": {"up": "moe"}}


def rng(seed=0):
    return np.random.default_rng(seed)


def close(x, y, tolerance=1e-12):
    np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def site(draw, rank, scaling, stacked, zero_b=False):
    """Returns a random site. With ranks other than 3, 4, 5 and 7 no two axes have the same size."""
    lead, out, width = ((EXPERTS,), OUT, WIDTH) if stacked else ((), OUT, 7)
    b = draw.standard_normal(lead + (out, rank)) * (0 if zero_b else 1)
    return {"a": draw.standard_normal(lead + (rank, width)), "b": b, "scaling": scaling}


def federation(ranks, seed=0, options=OPTIONS, zero_b=False):
    """Returns (state, clients, weights): an attention site "q" and an expert site "up", one client per rank."""
    draw = rng(seed)

    def sites(rank):
        scaling = common.lora_scale(rank, options)
        return {"q": site(draw, rank, scaling, False, zero_b), "up": site(draw, rank, scaling, True, zero_b)}

    state = {"sites": sites(options["max_rank"])}
    clients = []
    for index, rank in enumerate(ranks):
        top_k = 1 + index % 2
        counts = draw.multinomial(20 * top_k, [1 / EXPERTS] * EXPERTS)
        clients.append({"sites": sites(rank), "rank": rank, "top_k": top_k, "counts": {"moe": counts},
                        "tokens": {"moe": 20}, "steps": 3 + index})
    return state, clients, list(draw.uniform(0.5, 2.0, len(ranks)))


def homogeneous(count, seed=0, **settings):
    return federation([2] * count, seed, {**OPTIONS, "max_rank": 2}, **settings)


def mean_of_products(clients, weights, name):
    p = common.normalise(weights)
    return sum(w * common.delta(c["sites"][name]) for w, c in zip(p, clients))


def numeric_gradient(function, x, step=1e-6):
    """Computes central differences of a scalar function of one array, which is changed in place and restored."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        kept = x[index]
        x[index] = kept + step
        high = function()
        x[index] = kept - step
        low = function()
        x[index] = kept
        gradient[index] = (high - low) / (2 * step)
    return gradient
