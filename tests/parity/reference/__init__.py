"""Implements twelve federated LoRA methods in plain numpy float64, as a reference.

A site is a pair of LoRA factors with its scaling: dense factors (a [r, in], b [out, r]) or one pair per expert
(a [E, r, in], b [E, out, r]). It adds scaling * b @ a to the weight. Fed-SB has a square core: scaling * b @ core @ a.

    state    {"sites": {name: site}, and what the method keeps between rounds}
    clients  [{"sites", "top_k", "rank", "scaling", "counts": {layer: [E]}, "tokens": {layer: n}, "steps"}, ...]
    weights  [p_c, ...], renormalised over the given participants
    options  {option name: value}; "site_layer" {site: layer}, "alpha", "max_rank", "lr"

Every module has aggregate(state, clients, weights, options) -> state. Methods that change the base return the change of
this round as state["base_delta"] {site: [*, out, in]} and the sum over rounds as state["base_total"].
"""
