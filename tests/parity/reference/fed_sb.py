"""Fed-SB (Singhal et al. 2025): frozen common B and A from the first gradient's sign, a trained core R between them."""
import numpy as np

from . import common


def _orthonormal_columns(rows, columns, rng):
    """A random [rows, columns] matrix with orthonormal columns."""
    return np.linalg.qr(rng.standard_normal((rows, columns)))[0]


def _module(gradient, rank, lr, scaling, rng):
    """(a, core, b) of one [out, in] module."""
    out, width = gradient.shape
    rank = min(rank, out, width)
    if not gradient.any():
        b, a = _orthonormal_columns(out, rank, rng), _orthonormal_columns(width, rank, rng).T
        return a, np.zeros((rank, rank)), b
    u, s, v_t = np.linalg.svd(-lr * np.sign(gradient), full_matrices=False)
    u, v_t = common.fix_signs(u, v_t)
    return v_t[:rank], np.diag(s[:rank]) / scaling, u[:, :rank]


def initialise(gradient_sum, rank, lr, scaling, seed=42):
    """D = -lr sign(gradient sum) = U S V^T; B = U[:, :r], A = V^T[:r], R = diag(S[:r]) / s (LoRA-SB, Ponkshe et al.).

    gradient_sum [*, out, in]. The rank is cut to the smaller side. A module (expert) without any gradient gets random
    orthonormal B and A and R = 0.
    """
    rng = np.random.default_rng(seed)
    if gradient_sum.ndim == 2:
        a, core, b = _module(gradient_sum, rank, lr, scaling, rng)
    else:
        a, core, b = (np.stack(x) for x in zip(*[_module(g, rank, lr, scaling, rng) for g in gradient_sum]))
    return {"a": a, "b": b, "core": core, "scaling": float(scaling)}


def core_gradient(weight_gradient, site):
    """dL/dR = s B^T G A^T for G = dL/dW [*, out, in]."""
    return site["scaling"] * common.transpose(site["b"]) @ weight_gradient @ common.transpose(site["a"])


def aggregate(state, clients, weights, options):
    """R = sum_c p_c R_c, exact because A and B are common. A, B and the base stay."""
    return {**state, "sites": common.mean_factors(state, clients, weights, keys=("core",))}
