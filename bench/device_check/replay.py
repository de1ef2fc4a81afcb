#!/usr/bin/env python3
"""Compares replays of a CUDA graph with the same work started operator by operator, bit for bit, under routing that
changes between replays.

    replay.py --device cuda --top-k 1 8

The work is a chain of expert layers of OLMoE-1B-7B's shapes, forward and backward: tokens sorted by expert, grouped
products with the base and the LoRA factors, gradients of the activations and of a factor. The program has no graphs of
its own yet, so the chain is written here with torch.cuda.graph. Prints one JSON line for each number of experts per
token, then one for a graph of small operators. Without CUDA the chain runs twice, and the line says what it lacks.
"""
import argparse
import json
import statistics
import time

import torch

SHAPE = {"tokens": 2048, "hidden": 2048, "width": 1024, "experts": 64, "columns": 40, "layers": 4}
TINY = {"tokens": 32, "hidden": 16, "width": 8, "experts": 4, "columns": 8, "layers": 2}
NODES, REPEATS = 2000, 20
NEEDS_CUDA = "the graph needs a CUDA device; the chain ran twice operator by operator"


class Chain:
    """The weights, the tensors that a graph reads, and the chain's operators."""

    def __init__(self, device, shape, top_k):
        self.shape, self.top_k, self.device = shape, top_k, device
        self.generator = torch.Generator().manual_seed(5)
        tokens, hidden, width, experts = (shape[name] for name in ("tokens", "hidden", "width", "experts"))
        self.gate_up = self.drawn(experts, 2 * width, hidden)
        self.down = self.drawn(experts, hidden, width)
        self.factor = self.drawn(experts, shape["columns"], hidden)
        self.x, self.dy = self.drawn(tokens, hidden), self.drawn(tokens, hidden)
        self.numbers = torch.arange(experts, dtype=torch.uint8, device=device)
        self.places = torch.arange(tokens * top_k, device=device)
        self.chosen = torch.zeros(tokens, top_k, dtype=torch.uint8, device=device)

    def drawn(self, *sizes):
        return (torch.randn(sizes, generator=self.generator) * sizes[-1] ** -0.5).to(self.device, torch.bfloat16)

    def route(self, number):
        """Sets the experts of each token: of all, of half of them, of the fewest possible, of all but one, of all."""
        experts = self.shape["experts"]
        allowed = [experts, max(self.top_k, experts // 2), self.top_k, max(self.top_k, experts - 1), experts][number % 5]
        scores = torch.rand(self.shape["tokens"], allowed, generator=self.generator)
        self.chosen.copy_(scores.topk(self.top_k).indices.to(torch.uint8))
        self.x.copy_(self.drawn(*self.x.shape))

    def run(self):
        """Returns the output and the gradients. It waits for nothing and reads no value on the processor."""
        ordered, order = torch.sort(self.chosen.view(-1), stable=True)
        ends = torch.searchsorted(ordered, self.numbers, out_int32=True, right=True)
        idle = torch.searchsorted(ordered, self.numbers, out_int32=True).eq(ends).view(-1, 1, 1)
        token = order // self.top_k
        place = torch.empty_like(order).scatter_(0, order, self.places)
        x, dy, gradients = self.x, self.dy, []
        for _ in range(self.shape["layers"]):
            x, dy, of_factor = self.layer(x, dy, token, place, ends, idle)
            gradients.append(of_factor)
        return [x, dy, *gradients]

    def layer(self, x, dy, token, place, ends, idle):
        grouped, width = torch._grouped_mm, self.shape["width"]
        rows, drows = x.index_select(0, token), dy.index_select(0, token)
        gate_up = grouped(rows, self.gate_up.transpose(1, 2), ends)
        gate, up = gate_up[:, :width], gate_up[:, width:]
        inner = torch.nn.functional.silu(gate) * up
        y = grouped(inner, self.down.transpose(1, 2), ends)
        dinner = grouped(drows, self.down, ends)
        dgate_up = torch.cat([torch.ops.aten.silu_backward(dinner * up, gate), dinner * torch.nn.functional.silu(gate)], 1)
        dx = grouped(dgate_up, self.gate_up, ends)
        columns = grouped(rows, self.factor.transpose(1, 2), ends)
        of_factor = grouped(columns.t(), drows, ends).masked_fill(idle, 0)  # of idle experts it is undefined on a GPU
        return self.summed(x, y, place), self.summed(dy, dx, place), of_factor

    def summed(self, x, y, place):
        return x + y.index_select(0, place).view(x.shape[0], self.top_k, -1).sum(1)


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(device, work):
    times = []
    for _ in range(REPEATS):
        synchronise(device)
        begin = time.perf_counter()
        work()
        synchronise(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def captured(device, work):
    """Returns a function that replays `work` and returns its results, the seconds of the capture and the pool's GiB."""
    work()  # what a library does at its first call is not captured
    synchronise(device)
    before, begin = torch.cuda.memory_reserved(device), time.perf_counter()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = work()
    seconds = time.perf_counter() - begin

    def replay():
        graph.replay()
        return results

    return replay, seconds, (torch.cuda.memory_reserved(device) - before) / 2**30


def compare(device, chain):
    line = {"top_k": chain.top_k, **chain.shape}
    chain.route(0)
    replay = chain.run
    if device.type == "cuda":
        replay, line["capture_seconds"], line["pool_gib"] = captured(device, chain.run)
        line["replay_ms"] = milliseconds(device, replay)
    else:
        line["skipped"] = NEEDS_CUDA
    line["eager_ms"] = milliseconds(device, chain.run)
    line["equal"] = []
    for number in range(5):
        chain.route(number)
        eager = [tensor.clone() for tensor in chain.run()]
        line["equal"].append(all(torch.equal(one, other) for one, other in zip(eager, replay())))
    return line


def small_operators(device):
    """Measures a graph of additions to one number."""
    number = torch.zeros(1, device=device)

    def work():
        for _ in range(NODES):
            number.add_(1)
        return number

    line = {"what": f"graph of {NODES} add_"}
    if device.type != "cuda":
        return line | {"skipped": NEEDS_CUDA.split(";")[0]}
    eager = milliseconds(device, work)
    replay, seconds, _ = captured(device, work)
    return line | {"capture_seconds": seconds, "eager_us_each": 1e3 * eager / NODES, "replay_us_each": 1e3 * milliseconds(device, replay) / NODES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--top-k", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tiny", action="store_true", help="small sizes, for a trial on a CPU")
    options = parser.parse_args()
    shape = TINY if options.tiny else SHAPE
    with torch.no_grad():
        for top_k in options.top_k:
            print(json.dumps(compare(options.device, Chain(options.device, shape, min(top_k, shape["experts"])))), flush=True)
        print(json.dumps(small_operators(options.device)), flush=True)


if __name__ == "__main__":
    main()
