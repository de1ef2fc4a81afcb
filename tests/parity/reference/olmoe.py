"""Implements the forward pass of OLMoE (Muennighoff et al. 2024) in float64, with the router modulation of UB-SMoE.

Layout and order of operations are those of transformers' OlmoeForCausalLM. As there, the angles of the rotary embedding
are float32.
"""
import numpy as np

from . import ub_smoe


def rms_norm(x, weight, eps):
    return weight * x / np.sqrt((x ** 2).mean(axis=-1, keepdims=True) + eps)


def rotary(x, theta):
    """x [T, H, W] turned by its position: halves, not pairs."""
    tokens, _, width = x.shape
    frequency = (1.0 / theta ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))).astype(np.float32)
    angle = np.arange(tokens, dtype=np.float32)[:, None] * frequency
    cos, sin = (np.concatenate([f(angle)] * 2, axis=-1)[:, None].astype(np.float64) for f in (np.cos, np.sin))
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def attention(x, weights, prefix, config):
    """Causal attention with grouped keys and a norm over the whole width of queries and of keys."""
    q, k, v = (x @ weights[f"{prefix}.{name}_proj.weight"].T for name in "qkv")
    q, k = (rms_norm(y, weights[f"{prefix}.{name}_norm.weight"], config["rms_norm_eps"]) for y, name in ((q, "q"), (k, "k")))
    tokens, heads, groups = len(x), config["num_attention_heads"], config["num_key_value_heads"]
    q, k, v = (y.reshape(tokens, n, -1) for y, n in ((q, heads), (k, groups), (v, groups)))
    q, k = rotary(q, config["rope_theta"]), np.repeat(rotary(k, config["rope_theta"]), heads // groups, axis=1)
    scores = np.einsum("thw,shw->hts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    mixed = np.einsum("hts,shw->thw", p, np.repeat(v, heads // groups, axis=1)).reshape(tokens, -1)
    return mixed @ weights[f"{prefix}.o_proj.weight"].T


def mixture(x, weights, prefix, top_k, phi, options):
    """(y [T, D], counts [M]): the gate-weighted SwiGLU experts that ub_smoe.route selects."""
    scores = x @ weights[f"{prefix}.gate.weight"].T
    selected, gates, _ = ub_smoe.route(scores, top_k, phi, options)
    y = np.zeros_like(x)
    for expert in range(scores.shape[-1]):
        gate, up, down = (weights[f"{prefix}.experts.{expert}.{name}_proj.weight"] for name in ("gate", "up", "down"))
        g = x @ gate.T
        y += gates[:, [expert]] * ((g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T)
    return y, np.bincount(selected.ravel(), minlength=scores.shape[-1])


def logits(ids, weights, config, top_k, phi, options):
    """([T, V], {layer: counts [M]}) of one sequence. phi: {layer: [M]}, or None for the raw scores."""
    x, counts = weights["model.embed_tokens.weight"][ids], {}
    for index in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{index}"
        normed = rms_norm(x, weights[f"{prefix}.input_layernorm.weight"], config["rms_norm_eps"])
        x = x + attention(normed, weights, f"{prefix}.self_attn", config)
        normed = rms_norm(x, weights[f"{prefix}.post_attention_layernorm.weight"], config["rms_norm_eps"])
        layer = f"{prefix}.mlp"
        y, counts[layer] = mixture(normed, weights, layer, top_k, None if phi is None else phi[layer], options)
        x = x + y
    return rms_norm(x, weights["model.norm.weight"], config["rms_norm_eps"]) @ weights["lm_head.weight"].T, counts
