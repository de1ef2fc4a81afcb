"""UB-SMoE (Tran et al., ICML 2026, Algorithms 1 to 3): modulated routing, pseudo-gradients for idle experts."""
import math

import numpy as np

from . import common


# ---- dynamic modulated routing --------------------------------------------------------------------------------------

def num_candidates(options):
    """N_p: 2, or 16 for `candidate_wide`."""
    wide = options.get("dmr_mode", "candidate") == "candidate_wide"
    return options.get("num_candidates", options.get("N_p", 16 if wide else 2))


def modulate(scores, phi, options):
    """(m, T) [.., M]: m_i = s_i + phi_i inside T, the raw top N_p, and s_i outside; `preserve`: the other way round."""
    phi = np.zeros(scores.shape[-1]) if phi is None else np.asarray(phi)
    first = common.indicator(common.top_k(scores, num_candidates(options)), scores.shape[-1])
    modulated = ~first if options.get("dmr_mode", "candidate") == "preserve" else first
    return np.where(modulated, scores + phi, scores), first


def route(scores, top_k, phi, options):
    """(selected [.., K], gamma [.., M], scores of gamma [.., M]) for raw router scores [.., M]; phi None routes on the
    scores alone. gamma follows m or, for gate_scores "raw", the raw scores.

    candidate: the K largest m, largest first. preserve: the raw top N_p, then the K - N_p largest s + phi of the
    others; for K <= N_p the raw top K. gamma: see `gate`.
    """
    m, first = modulate(scores, phi, options)
    if phi is not None and options.get("dmr_mode", "candidate") == "preserve":
        kept = common.top_k(scores, min(top_k, num_candidates(options)))
        others = common.top_k(np.where(first, -np.inf, m), max(0, top_k - num_candidates(options)))
        selected = np.concatenate([kept, others], axis=-1)
    else:
        selected = common.top_k(m, top_k)
    m = scores if options.get("gate_scores") == "raw" else m
    return selected, gate(m, selected, options), m


def gate(m, selected, options):
    """gamma_i = exp m_i / sum_{selected} exp m_j (`renorm_selected`) or softmax(m)_i (`olmoe_native`); 0 elsewhere."""
    chosen = common.indicator(selected, m.shape[-1])
    norm = options.get("gate_norm", "renorm_selected")
    if norm == "renorm_selected":
        return common.softmax(np.where(chosen, m, -np.inf))
    if norm != "olmoe_native":
        raise ValueError(f"gate_norm: {norm}")
    return np.where(chosen, common.softmax(m), 0.0)


def gate_gradient(m, selected, upstream, options):
    """dL/dm [.., M] for upstream = dL/dgamma: p_j (c_j - sum_i p_i c_i), c the upstream inside the selection.

    p is gamma itself when renormalised (so exactly 0 for one expert), softmax(m) when native.
    """
    renorm = options.get("gate_norm", "renorm_selected") == "renorm_selected"
    p = gate(m, selected, options) if renorm else common.softmax(m)
    inside = np.where(common.indicator(selected, m.shape[-1]), upstream, 0.0)
    return p * (inside - (p * inside).sum(axis=-1, keepdims=True))


def phi_penalty(phi, options):
    """(value, gradient): lambda times the sum of squares of what lies outside [phi_min, phi_max] (`hinge`, the paper's
    equation) or of phi itself (`l2`, its Algorithm 1)."""
    strength = options.get("lambda_phi", 0.01)
    if options.get("phi_penalty", "hinge") == "l2":
        return strength * float((phi ** 2).sum()), 2 * strength * phi
    low, high = options.get("phi_range", (-1.0, 1.0))
    outside = np.maximum(phi - high, 0) - np.maximum(low - phi, 0)
    return strength * float((outside ** 2).sum()), 2 * strength * outside


# ---- universal pseudo-gradient, client ------------------------------------------------------------------------------

def rho(top_k, kbar, options):
    """rho_fn of x = ref / K_c, ref = Kbar of the participants (`kbar`) or K_max (`kmax`)."""
    x = (kbar if options.get("rho_ref", "kbar") == "kbar" else options.get("k_max", 8)) / top_k
    functions = {"sqrt": math.sqrt, "none": lambda _: 1.0, "linear": float, "inv_sqrt": lambda y: math.sqrt(1 / y),
                 "log": lambda y: math.log(y + 1)}
    return functions[options.get("rho_fn", "sqrt")](x)


def idle_share(usage, mode):
    """[E] in [0, 1], how idle each expert was in one optimiser step. usage: per micro-batch (counts [E], tokens).

    step_union: 1 if no token of the step chose it, else 0. token_weighted: 1 - f_i, f_i the share of the step's tokens.
    micro_union: the share of micro-batches in which no token chose it. Micro-batches without tokens inject nothing.
    """
    counts = np.array([np.asarray(c, dtype=np.float64) for c, _ in usage])
    tokens = np.array([float(n) for _, n in usage])
    if tokens.sum() == 0:
        return np.zeros(counts.shape[1])
    if mode == "step_union":
        return (counts.sum(axis=0) == 0).astype(np.float64)
    if mode == "token_weighted":
        return 1 - counts.sum(axis=0) / tokens.sum()
    if mode == "micro_union":
        return ((counts == 0) & (tokens[:, None] > 0)).mean(axis=0)
    raise ValueError(f"pg_activity: {mode}")


def expert_norms(pairs, site_layer):
    """{layer: [E]}: the norm over A and B of all sites of the layer, expert by expert."""
    squares = {}
    for name, layer in site_layer.items():
        squares[layer] = squares.get(layer, 0.0) + sum((pairs[name][k] ** 2).sum(axis=(-1, -2)) for k in ("a", "b"))
    return {layer: np.sqrt(q) for layer, q in squares.items()}


def clip_limits(gradients, pseudo, usage, options):
    """{layer: limit} of the norm of one expert's rho Gt, by pg_clip_mode.

    per_expert_norm: pg_clip. relative: pg_clip times the median (the lower of two) over the experts that a token of the
    step chose, of the norm of their real gradient, or for `decoupled_sgd` of their own Gt.
    """
    limit = options.get("pg_clip", 2.0)
    if options.get("pg_clip_mode", "relative") != "relative":
        return {layer: limit for layer in usage}
    measured = expert_norms(gradients if options.get("pg_apply", "decoupled_sgd") == "adam_grad" else pseudo,
                            options["site_layer"])
    limits = {}
    for layer, micro_batches in usage.items():
        used = np.sum([counts for counts, _ in micro_batches], axis=0) > 0
        ordered = np.sort(measured[layer][used])
        limits[layer] = limit * ordered[(len(ordered) - 1) // 2] if len(ordered) else 0.0
    return limits


def clipped_pseudo_gradient(pseudo, factor, limits, options):
    """clip(rho Gt) {site: {a, b}}: by the joint norm of an expert's tensors in a layer, or element by element."""
    scaled = {name: {k: factor * pair[k] for k in ("a", "b")} for name, pair in pseudo.items()}
    mode, layer_of = options.get("pg_clip_mode", "relative"), options["site_layer"]
    if mode == "elementwise":
        return {name: {k: np.clip(x, -limits[layer_of[name]], limits[layer_of[name]]) for k, x in pair.items()}
                for name, pair in scaled.items()}
    if mode in ("global_norm", "off"):
        return scaled
    if mode not in ("per_expert_norm", "relative"):
        raise ValueError(f"pg_clip_mode: {mode}")
    shrink = {layer: limits[layer] / np.maximum(np.maximum(norm, limits[layer]), 1e-300)
              for layer, norm in expert_norms(scaled, layer_of).items()}
    return {name: {k: shrink[options["site_layer"][name]][:, None, None] * x for k, x in pair.items()}
            for name, pair in scaled.items()}


def _clip_whole(gradients, limit):
    """All gradients times min(1, limit / joint norm)."""
    norm = math.sqrt(sum(float((x ** 2).sum()) for pair in gradients.values() for x in pair.values()))
    factor = min(1.0, limit / norm) if norm > 0 else 1.0
    return {name: {k: factor * x for k, x in pair.items()} for name, pair in gradients.items()}


def edit_gradients(gradients, pseudo, usage, top_k, kbar, options):
    """(gradients, bypass) after injection: share_i * clip(rho_c Gt_i) on expert i of every site in `pseudo`.

    gradients {site: {a, b}} are the accumulated real ones of all sites, usage {layer: [(counts [E], tokens) per
    micro-batch]}. `adam_grad` adds the injection to the gradients; bypass is empty. `decoupled_sgd` leaves them and
    returns the injection as bypass: theta -= lr * bypass after the optimiser step. `global_norm` clips everything,
    real parts included, after the addition.
    """
    apply, mode = options.get("pg_apply", "decoupled_sgd"), options.get("pg_clip_mode", "relative")
    if apply == "decoupled_sgd" and mode == "global_norm":
        raise ValueError("pg_clip_mode global_norm clips gradients; decoupled_sgd bypasses them")
    share = {layer: idle_share(u, options.get("pg_activity", "step_union")) for layer, u in usage.items()}
    clipped = clipped_pseudo_gradient(pseudo, rho(top_k, kbar, options), clip_limits(gradients, pseudo, usage, options),
                                      options)
    injected = {name: {k: share[options["site_layer"][name]][:, None, None] * x for k, x in pair.items()}
                for name, pair in clipped.items()}
    if apply == "decoupled_sgd":
        return gradients, injected
    edited = {name: {k: x + injected[name][k] if name in injected else x for k, x in pair.items()}
              for name, pair in gradients.items()}
    return (_clip_whole(edited, options.get("pg_clip", 2.0)) if mode == "global_norm" else edited), {}


def apply_bypass(sites, bypass, lr):
    """theta - lr * bypass on the sites it names (`decoupled_sgd`)."""
    return {name: {**site, **{k: site[k] - lr * x for k, x in bypass.get(name, {}).items()}}
            for name, site in sites.items()}


# ---- server ---------------------------------------------------------------------------------------------------------

def mean_top_k(weights, top_k):
    """Kbar = sum_c p_c K_c over the participants."""
    return float(common.normalise(weights) @ np.asarray(top_k, dtype=np.float64))


def utilisation(counts, tokens, weights):
    """u_i = sum_c p_c a_ci / n_c; sums to Kbar. counts [C, M], tokens [C]."""
    counts, tokens = np.asarray(counts, dtype=np.float64), np.asarray(tokens, dtype=np.float64)
    share = np.divide(counts, tokens[:, None], where=tokens[:, None] > 0, out=np.zeros_like(counts))
    return common.normalise(weights) @ share


def next_phi(phi, counts, tokens, weights, top_k, options):
    """(phi', u) of one layer: z = u* / (u + eps) - 1 with u* = Kbar / M, phit = tanh z times phi_max if z >= 0 and
    |phi_min| if z < 0 (`range`), tanh z (`none`), or tanh z cut to the range (`clip`), phi' = (1 - zeta) phit + zeta
    phi. counts [C, M], tokens [C], top_k [C].
    """
    u = utilisation(counts, tokens, weights)
    low, high = options.get("phi_range", (-1.0, 1.0))
    z = mean_top_k(weights, top_k) / u.size / (u + options.get("util_eps", 1e-8)) - 1
    target = {"range": np.where(z >= 0, high, abs(low)) * np.tanh(z), "none": np.tanh(z),
              "clip": np.clip(np.tanh(z), low, high)}[options.get("phi_scale", "range")]
    zeta = options.get("phi_momentum", 0.9)
    return (1 - zeta) * target + zeta * np.asarray(phi), u


def pseudo_gradients(before, after, lr, steps):
    """Gt = (Theta^t - Theta^{t+1}) / (eta Gamma) for A and B of the stacked sites, and of no other."""
    return {name: {k: (site[k] - after[name][k]) / (lr * steps) for k in ("a", "b")}
            for name, site in before.items() if common.is_stacked(site)}


def local_steps(clients, weights, options):
    """Gamma: p-weighted mean of the optimiser steps done, or 0.4 taken literally."""
    if options.get("pg_gamma", "opt_steps") == "literal_0.4":
        return 0.4
    return float(common.normalise(weights) @ np.array([c["steps"] for c in clients], dtype=np.float64))


def _update_phi(state, clients, weights, options):
    """({layer: phi}, {layer: u}). `local_fedavg`: the mean of the clients' phi takes the place of the last phi."""
    p, phi, used = common.normalise(weights), {}, {}
    for layer in clients[0]["counts"]:
        counts, tokens = [c["counts"][layer] for c in clients], [c["tokens"][layer] for c in clients]
        last = state.get("phi", {}).get(layer, np.zeros(len(counts[0])))
        if options.get("phi_train", "local_discard") == "local_fedavg":
            last = common.weighted_sum([c["phi"][layer] for c in clients], p)
        phi[layer], used[layer] = next_phi(last, counts, tokens, weights, [c["top_k"] for c in clients], options)
        if options.get("phi_update", "utilization") == "off":
            phi[layer] = last
    return phi, used


def aggregate(state, clients, weights, options):
    """Theta' = sum p_c Theta_c; then "pseudo" {site: {a, b}}, "phi" and "utilisation" {layer: [M]}, and "kbar"."""
    sites = common.mean_factors(state, clients, weights)
    phi, used = _update_phi(state, clients, weights, options)
    pseudo = pseudo_gradients(state["sites"], sites, options["lr"], local_steps(clients, weights, options))
    kbar = mean_top_k(weights, [c["top_k"] for c in clients])
    return {**state, "sites": sites, "pseudo": pseudo, "phi": phi, "utilisation": used, "kbar": kbar}
