#!/usr/bin/env python3
"""Measures the dense products of a training step of OLMoE-1B-7B in bfloat16, with one setting of cuBLAS's workspace.

    products.py --device cuda --workspace :4096:8     the program's setting; "unset" is cuBLAS's own

Prints one JSON line with the microseconds of each product. The setting needs a process of its own, because cuBLAS reads
it once.
"""
import argparse
import json
import os

VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
TOKENS, HIDDEN, VOCABULARY, RANK = 2048, 2048, 50304, 20


def shapes(tiny):
    tokens, hidden, vocabulary, rank = (32, 16, 64, 4) if tiny else (TOKENS, HIDDEN, VOCABULARY, RANK)
    return {"attention": (tokens, hidden, hidden), "to the rank": (tokens, hidden, rank), "from the rank": (tokens, rank, hidden),
            "gradient of a factor": (rank, tokens, hidden), "head": (tokens, hidden, vocabulary)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workspace", default="unset")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    os.environ.pop(VARIABLE, None)
    if options.workspace != "unset":
        os.environ[VARIABLE] = options.workspace
    import torch
    from ceilings import seconds

    device, result = torch.device(options.device), {"workspace": options.workspace}
    for name, (rows, inner, columns) in shapes(options.tiny).items():
        left, right = (torch.randn(sizes, device=device).bfloat16() for sizes in ((rows, inner), (inner, columns)))
        result[name] = 1e6 * seconds(device, lambda: left @ right, repeats=5 if options.tiny else 50)
    print(json.dumps(result | ({} if device.type == "cuda" else {"skipped": "needs a real GPU: a processor has no cuBLAS"})), flush=True)


if __name__ == "__main__":
    main()
