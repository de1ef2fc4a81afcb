"""Slimmable MoE: expert factors averaged by how much each client used the expert, and distillation between values of K."""
import numpy as np

from . import common


def aggregate(state, clients, weights, options):
    """Theta_i = sum_c p_c s_ci Theta_ci / sum_c p_c s_ci on stacked sites, FedAvg elsewhere. An expert without use keeps its factors.

    A client's "share" holds s_c [E] by layer.
    """
    p, sites = common.normalise(weights), common.mean_factors(state, clients, weights)
    for name, site in state["sites"].items():
        if not common.is_stacked(site):
            continue
        mass = p[:, None] * np.array([c["share"][options["site_layer"][name]] for c in clients], dtype=np.float64)
        for key in ("a", "b"):
            stacks = np.stack([c["sites"][name][key] for c in clients])
            for expert in range(mass.shape[1]):
                total = mass[:, expert].sum()
                sites[name][key][expert] = (site[key][expert] if total == 0 else
                                            np.tensordot(mass[:, expert], stacks[:, expert], axes=1) / total)
    return {**state, "sites": sites}


def share_of_steps(counts):
    """s_i from counts [S, E] of the steps of a round: the share of steps with a token on expert i."""
    return (np.asarray(counts) > 0).mean(axis=0)


def share_of_gates(logits, top_k):
    """s_i from raw router logits [T, E]: the mean over tokens of the softmax over the top K experts, 0 for others."""
    chosen = common.indicator(common.top_k(logits, top_k), logits.shape[-1])
    return common.softmax(np.where(chosen, logits, -np.inf)).mean(axis=0)


def divergence(teacher, student, temperature):
    """(mean_n tau^2 KL(p_n || q_n), its gradient with respect to the student's logits) of logits [N, V].

    d/dz = tau (q - p) / N.
    """
    p, q = common.softmax(teacher / temperature), common.softmax(student / temperature)
    value = temperature ** 2 * (p * (np.log(p) - np.log(q))).sum(axis=-1).mean()
    return float(value), temperature * (q - p) / len(student)
