"""FedIT (Zhang et al., ICASSP 2024): A = sum_c p_c A_c and B = sum_c p_c B_c, each factor by itself."""
from . import common


def aggregate(state, clients, weights, options):
    """FedAvg of both factors. The product of the means is not the mean of the products."""
    return {**state, "sites": common.mean_factors(state, clients, weights)}
