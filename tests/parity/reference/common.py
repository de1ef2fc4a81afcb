"""Functions of several methods: weights, scales, stacks, the product SVD, top-K, AdamW and balance metrics."""
import numpy as np


# ---- weights and scales ---------------------------------------------------------------------------------------------

def normalise(weights):
    """p_c = w_c / sum w over the participants of the round (FedAvg, McMahan et al. 2017)."""
    p = np.asarray(weights, dtype=np.float64)
    if p.ndim != 1 or p.size == 0 or (p < 0).any() or not p.sum() > 0:
        raise ValueError(f"weights must be non-negative with a positive sum: {weights}")
    return p / p.sum()


def lora_scale(rank, options):
    """s = alpha / r (Hu et al. 2022); `const_scale`: every rank gets the scale alpha / r_max of the largest."""
    mode = options.get("lora_scale_mode", "fixed_alpha")
    if mode == "fixed_alpha":
        return options["alpha"] / rank
    if mode == "const_scale":
        return options["alpha"] / options["max_rank"]
    raise ValueError(f"lora_scale_mode: {mode}")


def scaling_of(client, name):
    """The scale of one site: the site's own, else the client's."""
    site = client["sites"][name]
    return float(site["scaling"] if "scaling" in site else client["scaling"])


# ---- sites ----------------------------------------------------------------------------------------------------------

def is_stacked(site):
    """Whether the site holds one pair per expert."""
    return site["a"].ndim == 3


def rank_of(site):
    """r of a [.., r, in]."""
    return site["a"].shape[-2]


def transpose(x):
    """Swaps the last two axes."""
    return np.swapaxes(x, -1, -2)


def delta(site):
    """The weight a site adds: scaling * b @ a, or scaling * b @ core @ a."""
    left = site["b"] @ site["core"] if "core" in site else site["b"]
    return site["scaling"] * (left @ site["a"])


def with_rank(site, rank):
    """The first `rank` components: surplus ones dropped, missing ones zero in both factors. The scale is kept."""
    a, b, held = site["a"], site["b"], rank_of(site)
    more = max(0, rank - held)
    width = [(0, 0)] * (a.ndim - 2)
    a = np.pad(a[..., :rank, :], width + [(0, more), (0, 0)])
    b = np.pad(b[..., :, :rank], width + [(0, 0), (0, more)])
    return {**site, "a": a, "b": b}


def weighted_sum(arrays, weights):
    """sum_c w_c x_c in the order of the clients; w_c a number or an array that broadcasts."""
    total = np.zeros_like(np.asarray(arrays[0], dtype=np.float64))
    for x, w in zip(arrays, weights, strict=True):
        total = total + w * x
    return total


def same_scaling(clients, name):
    """The scale the clients share on a site. Raw factors of different scales must not be averaged."""
    scales = {scaling_of(c, name) for c in clients}
    if len(scales) != 1:
        raise ValueError(f"{name}: factors of different scales {sorted(scales)} cannot be averaged")
    return scales.pop()


def mean_factors(state, clients, weights, keys=("a", "b")):
    """FedAvg on each named factor by itself: X = sum_c p_c X_c. Other entries of the site come from the state."""
    p, sites = normalise(weights), {}
    for name in site_names(clients):
        site = state["sites"][name]
        mean = {k: weighted_sum([c["sites"][name][k] for c in clients], p) for k in keys}
        sites[name] = {**site, **mean, "scaling": same_scaling(clients, name)}
    return sites


def site_names(clients):
    """The sites the clients uploaded, in the first client's order. Every factor must be float64."""
    for client in clients:
        for name, site in client["sites"].items():
            for key in {"a", "b", "core"} & set(site):
                if site[key].dtype != np.float64:
                    raise ValueError(f"{name}.{key} is {site[key].dtype}; the reference computes in float64")
    return list(clients[0]["sites"])


def add_to_base(state, change):
    """Entries base_delta (this round) and base_total (all rounds) after `change`."""
    before = state.get("base_total", {})
    total = {name: before[name] + x if name in before else x for name, x in change.items()}
    return {"base_delta": change, "base_total": total}


# ---- stacks and the product SVD -------------------------------------------------------------------------------------

def stack(clients, weights, name):
    """(b, a) = ([B_1 .. B_C], [p_1 s_1 A_1; ..; p_C s_C A_C]), so that b @ a = sum_c p_c s_c B_c A_c."""
    p = normalise(weights)
    b = np.concatenate([c["sites"][name]["b"] for c in clients], axis=-1)
    a = np.concatenate([w * scaling_of(c, name) * c["sites"][name]["a"] for c, w in zip(clients, p)], axis=-2)
    return b, a


def fix_signs(u, v_t, slack=1e-9):
    """Makes the largest-magnitude entry of each left vector positive; ties (to rounding) go to the lowest index."""
    size = np.abs(u)
    first = np.argmax(size >= size.max(axis=-2, keepdims=True) * (1 - slack), axis=-2)
    sign = np.sign(np.take_along_axis(u, first[..., None, :], axis=-2))
    sign = np.where(sign == 0, 1.0, sign)
    return u * sign, v_t * transpose(sign)


def product_svd(b, a):
    """Thin SVD of b @ a without forming it: QR of b and of a^T, SVD of the core R_b R_a^T. Returns (u, s, v_t)."""
    q_b, r_b = np.linalg.qr(b)
    q_a, r_a = np.linalg.qr(transpose(a))
    u, s, v_t = np.linalg.svd(r_b @ transpose(r_a), full_matrices=False)
    u, v_t = fix_signs(q_b @ u, v_t @ transpose(q_a))
    return u, s, v_t


# ---- routing --------------------------------------------------------------------------------------------------------

def logsumexp(x):
    """ln sum_i exp(x_i) over the last axis, kept as an axis of one."""
    top = x.max(axis=-1, keepdims=True)
    return top + np.log(np.exp(x - top).sum(axis=-1, keepdims=True))


def softmax(x):
    """exp(x_i) / sum_j exp(x_j) over the last axis."""
    return np.exp(x - logsumexp(x))


def top_k(x, k):
    """Indices [.., k] of the k largest entries, largest first, ties to the lowest index."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :k]


def indicator(indices, size):
    """Boolean [.., size], true at the indices [.., k]."""
    mask = np.zeros(indices.shape[:-1] + (size,), dtype=bool)
    np.put_along_axis(mask, indices, True, axis=-1)
    return mask


# ---- optimiser ------------------------------------------------------------------------------------------------------

def adamw(parameter, gradient, moments, step, lr, betas=(0.9, 0.95), eps=1e-5, decay=0.0):
    """One AdamW step (Loshchilov and Hutter 2019): decay, bias-corrected moments, eps outside the root. step from 1.

    The defaults are those of [train] optimizer.
    """
    m = betas[0] * moments[0] + (1 - betas[0]) * gradient
    v = betas[1] * moments[1] + (1 - betas[1]) * gradient ** 2
    m_hat, v_hat = m / (1 - betas[0] ** step), v / (1 - betas[1] ** step)
    return parameter * (1 - lr * decay) - lr * m_hat / (np.sqrt(v_hat) + eps), (m, v)


# ---- balance of experts ---------------------------------------------------------------------------------------------

def entropy(u):
    """-sum q ln q with q = u / sum u over all entries of u; 0 ln 0 = 0. One layer [M], or all layers jointly [L, M]."""
    q = np.asarray(u, dtype=np.float64).ravel()
    q = q[q > 0] / q.sum()
    return float(-(q * np.log(q)).sum())


def gini(u):
    """sum_ij |u_i - u_j| / (2 M sum u): 0 when equal, (M - 1) / M when one expert takes all."""
    u = np.asarray(u, dtype=np.float64)
    return float(np.abs(u[:, None] - u[None, :]).sum() / (2 * u.size * u.sum()))
