"""Measures the limits of a GPU: a large copy, a large product, grouped products of an expert layer.

Every figure is the median of several repetitions after a warm-up, timed by events of the stream (on a CPU by the
clock).
"""
import statistics
import time

import torch

EXPERTS, HIDDEN, WIDTH = 64, 2048, 1024
ROWS_PER_GROUP = (4, 64, 512)


def seconds(device, work, repeats=10, warm_up=3):
    """Returns the median seconds of one call of `work`."""
    for _ in range(warm_up):
        work()
    return statistics.median(_timed(device, work) for _ in range(repeats))


def _timed(device, work):
    if device.type != "cuda":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3


def copy_rate(device, size):
    """Returns the bytes read and written per second by a copy of `size` bytes within the device's memory."""
    source = torch.empty(size, dtype=torch.uint8, device=device).random_(0, 255)
    target = torch.empty_like(source)
    return 2 * size / seconds(device, lambda: target.copy_(source))


def product_rate(device, side):
    """Returns the operations per second of a square bfloat16 product of random numbers."""
    left, right = (torch.randn(side, side, device=device).bfloat16() for _ in range(2))
    return 2 * side**3 / seconds(device, lambda: left @ right)


def grouped_rate(device, rows, experts=EXPERTS, hidden=HIDDEN, width=WIDTH):
    """Returns the operations per second of gate and up of an expert layer with `rows` tokens per expert."""
    tokens = torch.randn(experts * rows, hidden, device=device).bfloat16()
    weights = torch.randn(experts, 2 * width, hidden, device=device).bfloat16().transpose(1, 2)
    ends = torch.arange(1, experts + 1, device=device, dtype=torch.int32) * rows
    took = seconds(device, lambda: torch._grouped_mm(tokens, weights, ends))
    return 2 * tokens.shape[0] * hidden * 2 * width / took


def measure(device, tiny=False):
    """Returns all limits in SI units. `tiny` is a short version for a CPU."""
    shape = {"experts": 4, "hidden": 64, "width": 32} if tiny else {}
    return {"copy_bytes_per_second": copy_rate(device, 1 << (20 if tiny else 32)),
            "product_per_second": product_rate(device, 128 if tiny else 8192),
            "grouped_per_second": {str(rows): grouped_rate(device, rows, **shape) for rows in ROWS_PER_GROUP}}
