#!/usr/bin/env python3
"""Makes a sparse mixture-of-experts base out of SmolLM2-135M-Instruct: a checkpoint of OLMoE's layout with trained weights.

    .venv-v5/bin/python tools/sparse_base.py --dense models/SmolLM2-135M-Instruct --text FILE... --out models/smollm2-olmoe16

1. Every feed-forward block is split into experts: neurons that are active on the same tokens belong together. The router is a linear
   regression of the logarithms of the experts' norms.
2. Each block alone learns to give the dense block's output with K = all, 1/2, 1/4 and 1/8 of the experts.
3. The whole model is distilled from the dense one (Kullback-Leibler divergence of the next token). Each sequence has its own K, and
   small K is drawn more often. Only the blocks are trained.
4. The checkpoint is written. Its top-k is the number of experts, so that K = all is close to the dense model.

With T tokens, D the width, M experts and W neurons of an expert: x_TD, gates_TM, hidden_TMW.

Needs torch and transformers 5, and 5 GB of memory. One core takes 5 minutes for steps 1 and 2, and 5 seconds per step of distillation.
A second call with the same --out goes on where the first one was stopped, or further with a larger --steps.
docs/decisions/0095-a-trained-model.md has the perplexities.
"""

import argparse
import json
import pathlib
import random
import shutil
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 256        # tokens of a training sequence
SAMPLE = 28_672     # tokens of which the inputs of every block are kept for steps 1 and 2
HELD_OUT = 1_024    # of them, for the printed errors
BALANCE = 0.02      # weight of the load-balancing loss


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dense", type=pathlib.Path, required=True, help="folder of the dense model (tools/fetch_smollm2.py)")
    parser.add_argument("--text", type=pathlib.Path, nargs="+", required=True, help="plain texts to learn from")
    parser.add_argument("--test", type=pathlib.Path, help="a text on which perplexity is printed")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("--block-steps", type=int, default=120, help="optimiser steps of each block")
    parser.add_argument("--steps", type=int, default=300, help="optimiser steps of the distillation")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def sequences(tokenizer, files, rng):
    """Returns windows of token ids of all files, shuffled."""
    rows = []
    for file in files:
        ids = tokenizer(file.read_text(encoding="utf-8"), add_special_tokens=False).input_ids
        rows += [ids[i:i + WINDOW] for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
    rng.shuffle(rows)
    return rows


# --- 1. experts and routers ---

@torch.no_grad()
def block_inputs(model, rows):
    """Returns the inputs of every feed-forward block, [T, D], in a shuffled order of tokens."""
    kept = [[] for _ in model.model.layers]
    hooks = [layer.mlp.register_forward_pre_hook(lambda module, given, into=into: into.append(given[0].flatten(0, 1).clone()))
             for layer, into in zip(model.model.layers, kept)]
    for begin in range(0, len(rows), 4):
        model.model(torch.tensor(rows[begin:begin + 4]))
    for hook in hooks:
        hook.remove()
    order = torch.randperm(sum(len(part) for part in kept[0]))
    return [torch.cat(parts)[order] for parts in kept]


def equal_clusters(points, count, rounds=12):
    """k-means with clusters of one size. points: unit rows, [neurons, features]. Returns the cluster of each row."""
    seeds, distance = [0], 1 - points @ points[0]
    for _ in range(count - 1):
        seeds.append(int(torch.multinomial(distance.clamp_min(1e-9), 1)))
        distance = torch.minimum(distance, 1 - points @ points[seeds[-1]])
    centres = points[seeds]
    for _ in range(rounds):
        nearness = points @ centres.T
        best = nearness.topk(2, dim=1).values
        wishes, room = nearness.argsort(1, descending=True).tolist(), [len(points) // count] * count
        label = torch.empty(len(points), dtype=torch.long)
        for i in (best[:, 0] - best[:, 1]).argsort(descending=True).tolist():  # who would lose most chooses first
            label[i] = next(cluster for cluster in wishes[i] if room[cluster])
            room[label[i]] -= 1
        centres = torch.stack([F.normalize(points[label == cluster].sum(0), dim=0) for cluster in range(count)])
    return label


def activity(x_TD, gate, up, down):
    """Returns one unit row per neuron: on which tokens it is among the strongest tenth, by a random projection."""
    strength = (F.silu(x_TD @ gate.T) * (x_TD @ up.T)).abs() * down.norm(dim=0)
    strength = strength / strength.pow(2).mean(1, keepdim=True).sqrt()
    strongest = torch.where(strength >= strength.quantile(0.9, dim=1, keepdim=True), strength, torch.zeros(()))
    return F.normalize(strongest.T @ torch.randn(len(x_TD), 384), dim=1)


class Mixture(torch.nn.Module):
    """A feed-forward block of experts with OLMoE's gates: the softmax over all experts, of which the K largest count.

    gate, up [M W, D], down [D, M W] and router [M, D] are parameters. top_k: one number, or one per row of the input.
    """

    def __init__(self, x_TD, gate, up, down, experts):
        super().__init__()
        order = equal_clusters(activity(x_TD[:8192], gate, up, down), experts).argsort(stable=True)
        self.experts, self.top_k, self.balance = experts, experts, 0
        self.gate, self.up = (torch.nn.Parameter(weight[order].clone()) for weight in (gate, up))
        self.down = torch.nn.Parameter(down[:, order] * experts)  # gates of equal experts are 1/M
        self.router = torch.nn.Parameter(self.norm_regression(x_TD[:16384]))

    @torch.no_grad()
    def norm_regression(self, x_TD):
        hidden = (F.silu(x_TD @ self.gate.T) * (x_TD @ self.up.T)).unflatten(1, (self.experts, -1))
        down = self.down.unflatten(1, (self.experts, -1))
        norms = torch.stack([(hidden[:, e] @ down[:, e].T).norm(dim=1) for e in range(self.experts)], 1)
        wanted = (norms + 1e-6).log()
        square = x_TD.T @ x_TD
        square += 1e-2 * square.diagonal().mean() * torch.eye(len(square))
        router = torch.linalg.solve(square, x_TD.T @ (wanted - wanted.mean(1, keepdim=True))).T
        return router * min(1.0, 0.5 / (x_TD @ router.T).std().item())

    def forward(self, x):
        logits = F.linear(x, self.router).float()
        chances = logits.softmax(-1)
        k = torch.as_tensor(self.top_k).view(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
        chosen = logits >= logits.detach().sort(-1, descending=True).values.gather(-1, k - 1)
        if torch.is_grad_enabled():  # 1 where all experts are used alike
            use = (chosen.float() / k).flatten(0, -2).mean(0)
            self.balance = self.experts * (use * chances.flatten(0, -2).mean(0)).sum()
        hidden = F.silu(F.linear(x, self.gate)) * F.linear(x, self.up)
        gates = (chances * chosen).to(hidden.dtype)
        return F.linear((hidden.unflatten(-1, (self.experts, -1)) * gates[..., None]).flatten(-2), self.down)


# --- 2. each block alone ---

def optimiser(parameters):
    return torch.optim.AdamW(parameters, weight_decay=0, betas=(0.9, 0.95), fused=True)


def set_rate(optimizer, peak, step, steps):
    optimizer.param_groups[0]["lr"] = peak * min(1, (step + 1) / 10) * max(0.02, 1 - step / steps)


def relative_error(given, wanted):
    return ((given - wanted).pow(2).sum(1) / wanted.pow(2).sum(1)).mean()


def fit(block, x_TD, y_TD, top_ks, steps, batch=1024):
    """A quarter of each batch has each K."""
    optimizer = optimiser(block.parameters())
    block.top_k = torch.tensor(top_ks).repeat_interleave(batch // len(top_ks))
    for step in range(steps):
        set_rate(optimizer, 2e-3, step, steps)
        chosen = torch.randint(len(x_TD), (len(block.top_k),))
        with torch.autocast("cpu", torch.bfloat16):
            given = block(x_TD[chosen])
        optimizer.zero_grad()
        (relative_error(given.float(), y_TD[chosen]) + BALANCE * block.balance).backward()
        optimizer.step()


def split_blocks(student, inputs, flags, top_ks):
    """Replaces every feed-forward block by a mixture that has learned to do its work."""
    for number, layer in enumerate(student.model.layers):
        start, x_TD = time.time(), inputs[number].float()
        inputs[number] = None
        with torch.no_grad():
            y_TD = layer.mlp(x_TD)
        weights = (getattr(layer.mlp, f"{name}_proj").weight.detach() for name in ("gate", "up", "down"))
        layer.mlp = Mixture(x_TD, *weights, flags.experts)
        fit(layer.mlp, x_TD[:-HELD_OUT], y_TD[:-HELD_OUT], top_ks, flags.block_steps)
        errors = []
        for layer.mlp.top_k in top_ks:
            with torch.no_grad():
                errors.append(f"{relative_error(layer.mlp(x_TD[-HELD_OUT:]), y_TD[-HELD_OUT:]).item():.3f}")
        print(f"block {number}: relative error at K = {top_ks}: {', '.join(errors)} ({time.time() - start:.0f} s)", flush=True)


# --- 3. the whole model ---

def distil(student, teacher, rows, top_ks, first, steps, save):
    """Batches of four sequences: one with all experts, one with an eighth of them, two drawn, of which one is small."""
    blocks = [layer.mlp for layer in student.model.layers]
    student.requires_grad_(False)
    parameters = [one.requires_grad_(True) for block in blocks for one in block.parameters()]
    optimizer, recent, start = optimiser(parameters), {}, time.time()
    for step in range(first, steps):
        rng = random.Random(step)
        set_rate(optimizer, 6e-4, step, steps)
        ids = torch.tensor([rows[(4 * step + i) % len(rows)] for i in range(4)])
        k = torch.tensor([top_ks[0], top_ks[3], rng.choice(top_ks[1:3]), rng.choice(top_ks[2:])])
        for block in blocks:
            block.top_k = k
        at = torch.randperm(WINDOW)[:WINDOW // 2]  # the head is a third of the work
        with torch.no_grad():
            wanted = teacher.lm_head(teacher.model(ids).last_hidden_state[:, at]).float().log_softmax(-1)
        with torch.autocast("cpu", torch.bfloat16):
            logits = student.lm_head(student.model(ids).last_hidden_state[:, at])
        divergence = F.kl_div(logits.float().log_softmax(-1), wanted, log_target=True, reduction="none").sum(-1).mean(1)
        loss = (divergence / (1 + divergence.detach())).mean()  # small K does not outweigh the rest
        optimizer.zero_grad()
        (loss + BALANCE * torch.stack([block.balance for block in blocks]).mean()).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        for one, value in zip(k.tolist(), divergence.tolist()):
            recent[one] = [*recent.get(one, []), value][-12:]
        if (step + 1) % 10 == 0 or step + 1 == steps:
            means = ", ".join(f"{one}: {sum(recent[one]) / len(recent[one]):.2f}" for one in sorted(recent))
            print(f"step {step + 1}: divergence at K = {means} ({time.time() - start:.0f} s)", flush=True)
            save(step + 1)


@torch.no_grad()
def perplexity(student, tokenizer, file, top_k, windows=16, width=1024):
    ids = tokenizer(file.read_text(encoding="utf-8"), add_special_tokens=False).input_ids[:windows * width]
    for layer in student.model.layers:
        layer.mlp.top_k = top_k
    losses = [student(input_ids=one[None], labels=one[None]).loss for one in torch.tensor(ids).view(-1, width)]
    return torch.stack(losses).mean().exp().item()


# --- 4. the checkpoint ---

@torch.no_grad()
def write(student, flags, rows):
    """OLMoE normalises queries and keys over their whole width, Llama does not. The root mean square of queries hardly varies: it is
    their norm's weight. Keys are made so small that the norm's epsilon outweighs them, which makes their norm linear. An adapter of
    k_proj would be magnified 2^17 times: leave it out of lora.targets."""
    config, small = student.config, 2.0**-17
    lengths = []
    hooks = [layer.self_attn.q_proj.register_forward_hook(
        lambda module, given, made: lengths.append(made[:, 1:].float().pow(2).mean(-1).sqrt().mean().item())) for layer in student.model.layers]
    for layer in student.model.layers:
        layer.mlp.top_k = flags.experts
    student.model(torch.tensor(rows[:8]))
    for hook in hooks:
        hook.remove()
    weights = {name: weight for name, weight in student.state_dict().items() if ".mlp." not in name and name != "lm_head.weight"}
    for number, layer in enumerate(student.model.layers):
        at, block = f"model.layers.{number}.", layer.mlp
        weights[at + "self_attn.k_proj.weight"] = weights[at + "self_attn.k_proj.weight"] * small
        keys = len(weights[at + "self_attn.k_proj.weight"])
        weights[at + "self_attn.k_norm.weight"] = torch.full((keys,), config.rms_norm_eps**0.5 / small)
        weights[at + "self_attn.q_norm.weight"] = torch.full((config.hidden_size,), lengths[number])
        weights[at + "mlp.gate.weight"] = block.router
        for name, weight in (("gate", block.gate), ("up", block.up), ("down", block.down.T)):
            for e, part in enumerate(weight.chunk(flags.experts)):
                weights[at + f"mlp.experts.{e}.{name}_proj.weight"] = part.T if name == "down" else part
    save_file({name: weight.detach().bfloat16().contiguous() for name, weight in weights.items()}, flags.out / "model.safetensors",
              metadata={"format": "pt"})
    settings = json.loads((flags.dense / "config.json").read_text())
    settings |= {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": flags.experts,
                 "num_experts_per_tok": flags.experts, "intermediate_size": config.intermediate_size // flags.experts,
                 "norm_topk_prob": False, "clip_qkv": None, "rope_scaling": None}
    (flags.out / "config.json").write_text(json.dumps({k: v for k, v in settings.items() if k not in ("mlp_bias", "head_dim")}, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "LICENSE"):
        shutil.copy(flags.dense / name, flags.out)


def main():
    flags = arguments()
    flags.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(flags.dense)
    teacher = AutoModelForCausalLM.from_pretrained(flags.dense, dtype=torch.bfloat16).eval()
    student = AutoModelForCausalLM.from_pretrained(flags.dense, dtype=torch.float32).eval()
    rows = sequences(tokenizer, flags.text, random.Random(0))
    top_ks = [max(1, flags.experts >> shift) for shift in range(4)]
    unfinished, first = flags.out / "unfinished.pt", 0
    if unfinished.exists():
        kept = torch.load(unfinished, weights_only=False)
        first = kept["step"]
        for layer, layer.mlp in zip(student.model.layers, kept["blocks"]):
            pass
    else:
        split_blocks(student, block_inputs(teacher, rows[:SAMPLE // WINDOW]), flags, top_ks)

    def save(step):
        torch.save({"step": step, "blocks": [layer.mlp for layer in student.model.layers]}, unfinished)

    save(first)
    distil(student, teacher, rows, top_ks, first, flags.steps, save)
    write(student, flags, rows)
    for k in top_ks if flags.test else []:
        print(f"perplexity at K = {k}: {perplexity(student, tokenizer, flags.test, k):.1f}", flush=True)


if __name__ == "__main__":
    main()
