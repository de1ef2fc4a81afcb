"""FLoRA (Wang et al., NeurIPS 2024): the clients' factors are stacked and merged into the base; adapters start anew."""
from . import common


def aggregate(state, clients, weights, options):
    """W <- W + [B_1 .. B_C] [p_1 s_1 A_1; ..; p_C s_C A_C] = W + sum_c p_c s_c B_c A_c.

    "stack" holds the factors that are sent down, of rank sum r_c and scale 1. No adapter survives: "sites" is empty.
    """
    stacks = {}
    for name in common.site_names(clients):
        b, a = common.stack(clients, weights, name)
        stacks[name] = {"a": a, "b": b, "scaling": 1.0}
    change = {name: common.delta(site) for name, site in stacks.items()}
    return {**state, "sites": {}, "stack": stacks, **common.add_to_base(state, change)}
