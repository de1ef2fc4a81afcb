"""Computes the minimal time of a LoRA training step of an OLMoE model on a GPU: operations or bytes, whichever takes
longer.

Counts the products of the forward pass, of the backward pass to the activations, and of the adapters' gradients, with
the loss at every position and without recomputation. Bytes are the weights, read once in each pass, and the adapters
with their gradients and moments. Activations are not counted, because they may stay in caches.
"""
BASE_BYTES = 2  # bfloat16
ADAPTER_BYTES = 4 * (2 + 1)  # read forward, read backward, gradient written: float32
ADAMW_BYTES = 4 * 8  # parameter, gradient and two moments, read and written


def sites(config):
    """Returns (rows in, rows out, copies, copies used per token and expert) of every adapted linear layer of a layer.
    """
    hidden, width, experts = config["hidden_size"], config["intermediate_size"], config["num_experts"]
    attention = [(hidden, hidden, 1)] * 4
    return attention, [(hidden, width, experts), (hidden, width, experts), (width, hidden, experts)]


def operations(config, tokens, length, top_k, rank):
    """Returns the floating-point operations of a step of `tokens` tokens in sequences of `length`."""
    attention, experts = sites(config)
    router = config["hidden_size"] * config["num_experts"]
    base = sum(i * o for i, o, _ in attention) + top_k * sum(i * o for i, o, _ in experts) + router
    low_rank = rank * (sum(i + o for i, o, _ in attention) + top_k * sum(i + o for i, o, _ in experts))
    scores = 3.5 * length * config["hidden_size"]
    head = config["vocab_size"] * config["hidden_size"]
    layers = config["num_hidden_layers"]
    return tokens * (4 * (layers * base + head) + 6 * layers * low_rank + 2 * layers * scores)


def bytes_moved(config, tokens, top_k, rank):
    """Returns the bytes of weights, adapters and optimiser state that a step must read and write."""
    attention, experts = sites(config)
    met = 1 - (1 - top_k / config["num_experts"]) ** tokens
    layers = config["num_hidden_layers"]
    dense = layers * sum(i * o for i, o, _ in attention) + config["vocab_size"] * config["hidden_size"]
    sparse = layers * met * sum(i * o * n for i, o, n in experts)
    adapters = rank * layers * (sum(i + o for i, o, _ in attention) + sum((i + o) * n for i, o, n in experts))
    return 2 * BASE_BYTES * (dense + sparse) + (ADAPTER_BYTES + ADAMW_BYTES) * adapters


def least_seconds(config, ceilings, tokens, length, top_k, rank):
    """Returns the minimal seconds, from the measured limits of the GPU."""
    return max(operations(config, tokens, length, top_k, rank) / ceilings["product_per_second"],
               bytes_moved(config, tokens, top_k, rank) / ceilings["copy_bytes_per_second"])
