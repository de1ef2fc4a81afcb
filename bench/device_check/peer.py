#!/usr/bin/env python3
"""Runs transformers + PEFT on the checkpoint and the token ids of a device check.

    peer.py steps MODEL --device cuda --shapes 1x256x1 8x256x8 --steps 8 --rank 20
    peer.py generate MODEL --device cuda --prompts FILE --new 32 --top-k 8

One process loads the model once. It prints one JSON line for each shape (batch x length x experts per token) or for
the generation. Times are measured after the device has finished. Memory is the allocator's peak.
"""
import argparse
import gc
import json
import pathlib
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from train_step import TARGETS, ids_of  # noqa: E402


def versions():
    import peft
    import transformers

    return {"transformers": transformers.__version__, "peft": peft.__version__, "torch": torch.__version__}


def load(model, device):
    from transformers import OlmoeForCausalLM

    base = OlmoeForCausalLM.from_pretrained(model, dtype=torch.bfloat16)
    experts = "default"
    if hasattr(base, "set_experts_implementation"):
        base.set_experts_implementation("grouped_mm")
        experts = "grouped_mm"
    return base.to(device), experts


def set_top_k(base, top_k):
    """Sets the number of experts per token, of which every router has its own copy."""
    base.config.num_experts_per_tok = top_k
    for module in base.modules():
        for name in ("top_k", "num_experts_per_tok"):
            if isinstance(getattr(module, name, None), int):
                setattr(module, name, top_k)


def adapted(base, rank):
    """Adds PEFT's adapters in float32 to every attention projection and expert."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(7)
    model = get_peft_model(base, LoraConfig(r=rank, lora_alpha=rank, **TARGETS["v5"])).train()
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for leaf in leaves:
        leaf.data = leaf.data.float()
    return model, leaves


def settled(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak_bytes(device):
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def step(model, optimizer, ids, device):
    begin = settled(device)
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    value = loss.item()
    return settled(device) - begin, value


def restart_adapters(model, start):
    """Resets the adapters, so that every shape starts with the same ones and its losses do not depend on the others."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in start:
                parameter.copy_(start[name])


def steps_of_shape(model, leaves, shape, job, device):
    batch, length, top_k = shape
    set_top_k(model, top_k)
    optimizer = torch.optim.AdamW(leaves, lr=2e-4, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.01, fused=True)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    seconds, losses = [], []
    for number in range(job.steps):
        ids = torch.tensor(ids_of(number, batch * length, model.config.vocab_size)).view(batch, length).to(device)
        took, loss = step(model, optimizer, ids, device)
        seconds.append(took)
        losses.append(loss)
    return {"who": "peer", "shape": "x".join(map(str, shape)), "seconds": seconds, "losses": losses,
            "peak_gib": peak_bytes(device) / 2**30}


def run_steps(job, device):
    base, experts = load(job.model, device)
    model, leaves = adapted(base, job.rank)
    start = {name: p.detach().clone().cpu() for name, p in model.named_parameters() if p.requires_grad}
    for shape in job.shapes:
        restart_adapters(model, start)
        print(json.dumps(steps_of_shape(model, leaves, shape, job, device) | versions() | {"experts": experts}), flush=True)


def run_generate(job, device):
    base, experts = load(job.model, device)
    set_top_k(base, job.top_k)
    prompts, pad, outputs = json.loads(job.prompts.read_text()), base.config.pad_token_id, []
    begin = settled(device)
    for first in range(0, len(prompts), job.batch):
        batch = prompts[first:first + job.batch]
        longest = max(map(len, batch))
        ids = torch.tensor([[pad] * (longest - len(one)) + one for one in batch], device=device)
        mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in batch], device=device)
        with torch.inference_mode():
            done = base.eval().generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=job.new,
                                        min_new_tokens=job.new, eos_token_id=None, pad_token_id=pad)
        outputs += done[:, longest:].tolist()
    print(json.dumps({"who": "peer", "seconds": settled(device) - begin, "outputs": outputs, "experts": experts,
                      "peak_gib": peak_bytes(device) / 2**30} | versions()))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["steps", "generate"])
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--shapes", nargs="+", type=lambda text: tuple(map(int, text.split("x"))), default=[(1, 256, 1)])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--prompts", type=pathlib.Path)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--top-k", type=int, default=8)
    job = parser.parse_args()
    {"steps": run_steps, "generate": run_generate}[job.what](job, job.device)


if __name__ == "__main__":
    main()
