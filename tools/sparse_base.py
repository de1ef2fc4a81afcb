#!/usr/bin/env python3
"""Makes a sparse mixture-of-experts base out of SmolLM2-135M-Instruct: a checkpoint of OLMoE's layout with trained weights.

    .venv-v5/bin/python tools/sparse_base.py --dense models/SmolLM2-135M-Instruct --text FILE... --out models/smollm2-olmoe16

1. Every feed-forward block is split into experts: neurons that are active on the same tokens belong together. The router is a linear
   regression of the logarithms of the experts' norms. Each block alone learns to give the dense block's output.
2. The whole model is distilled from the dense one (Kullback-Leibler divergence of the next token), the blocks alone being trained.
   K is all experts, 1/2, 1/4 or 1/8 of them. Every sequence has its own K, and small K is drawn more often.
3. The checkpoint is written. Its top-k is the number of experts, so that K = all is close to the dense model.

Needs torch, transformers 5 and 5 GB of memory. Two cores take 5 minutes for 1, and 4.5 seconds per step of 2. A second call with the same
--out goes on where the first was stopped. Perplexities: docs/decisions/0098-a-trained-model.md. Axes: T tokens, D width.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import statistics
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

WINDOW = 256        # tokens of a training sequence
BALANCE = 0.02      # weight of the load-balancing loss


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dense", required=True, type=pathlib.Path, help="folder of the dense model (tools/fetch_smollm2.py)")
    parser.add_argument("--text", required=True, nargs="+", type=pathlib.Path, help="plain texts to learn from")
    parser.add_argument("--test", type=pathlib.Path, help="a text on which perplexity and the spread of router logits are printed")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the checkpoint")
    for name, value in (("experts", 16), ("block-steps", 120), ("steps", 600), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    return parser.parse_args()


def put(file, write):
    """Calls write(path) with another name in the file's folder, and renames the result: a kill leaves the old file or the new one."""
    part = file.with_name(file.name + ".part")
    write(part)
    os.replace(part, file)


def sequences(tokenizer, files, rng):
    """Returns windows of token ids of all files, shuffled."""
    texts = [tokenizer(file.read_text(encoding="utf-8"), add_special_tokens=False).input_ids for file in files]
    rows = [ids[i:i + WINDOW] for ids in texts for i in range(0, len(ids) - WINDOW + 1, WINDOW)]
    rng.shuffle(rows)
    return rows


def set_top_k(model, top_k):
    for layer in model.model.layers:
        layer.mlp.top_k = top_k


@torch.no_grad()
def block_inputs(model, rows):
    """Returns the inputs of every feed-forward block, [T, D]."""
    kept = [[] for _ in model.model.layers]
    hooks = [layer.mlp.register_forward_pre_hook(lambda _, given, into=into: into.append(given[0].flatten(0, 1).clone()))
             for layer, into in zip(model.model.layers, kept)]
    for row in rows:
        model.model(torch.tensor([row]))
    for hook in hooks:
        hook.remove()
    return [torch.cat(parts) for parts in kept]


def equal_clusters(points, count, rounds=12):
    """k-means with clusters of one size. points: unit rows, [neurons, features]. Returns the cluster of each row."""
    seeds, distance = [0], 1 - points @ points[0]
    for _ in range(count - 1):
        seeds.append(int(torch.multinomial(distance.clamp_min(1e-9), 1)))
        distance = torch.minimum(distance, 1 - points @ points[seeds[-1]])
    centres, label = points[seeds], torch.empty(len(points), dtype=torch.long)
    for _ in range(rounds):
        nearness, room = points @ centres.T, [len(points) // count] * count
        best, wishes = nearness.topk(2, dim=1).values, nearness.argsort(1, descending=True).tolist()
        for i in (best[:, 0] - best[:, 1]).argsort(descending=True).tolist():  # who would lose most chooses first
            label[i] = next(cluster for cluster in wishes[i] if room[cluster])
            room[label[i]] -= 1
        centres = torch.stack([F.normalize(points[label == cluster].sum(0), dim=0) for cluster in range(count)])
    return label


def activity(x_TD, gate, up, down):
    """Returns one unit row per neuron: on which tokens it is among the strongest tenth, by a random projection."""
    strength = F.normalize((F.silu(x_TD @ gate.T) * (x_TD @ up.T)).abs() * down.norm(dim=0), dim=1)
    strongest = strength * (strength >= strength.quantile(0.9, dim=1, keepdim=True))
    return F.normalize(strongest.T @ torch.randn(len(x_TD), 384), dim=1)


class Mixture(torch.nn.Module):
    """Experts with OLMoE's gates: the softmax over all, of which the K largest count. top_k: one number, or one per row of the input."""

    def __init__(self, x_TD, gate, up, down, experts):
        super().__init__()
        order = equal_clusters(activity(x_TD[:8192], gate, up, down), experts).argsort(stable=True)
        self.experts, self.top_k, self.balance = experts, experts, 0
        self.gate, self.up = (torch.nn.Parameter(weight[order].clone()) for weight in (gate, up))
        self.down = torch.nn.Parameter(down[:, order] * experts)  # gates of equal experts are 1/M
        self.router = torch.nn.Parameter(self.norm_regression(x_TD[:16384]))
        self.scale_to(x_TD[:4096], F.linear(F.silu(x_TD[:4096] @ gate.T) * (x_TD[:4096] @ up.T), down))

    @torch.no_grad()
    def norm_regression(self, x_TD):
        hidden = (F.silu(x_TD @ self.gate.T) * (x_TD @ self.up.T)).chunk(self.experts, 1)
        norms = [(part @ down.T).norm(dim=1) for part, down in zip(hidden, self.down.chunk(self.experts, 1))]
        wanted = (torch.stack(norms, 1) + 1e-6).log()
        square = x_TD.T @ x_TD
        square += 1e-2 * square.diagonal().mean() * torch.eye(len(square))
        router = torch.linalg.solve(square, x_TD.T @ (wanted - wanted.mean(1, keepdim=True))).T
        return router * min(1.0, 0.5 / (x_TD @ router.T).std().item())

    @torch.no_grad()
    def scale_to(self, x_TD, y_TD):
        """Multiplies the output so that its squared distance from y is least: gates are not equal."""
        given = self(x_TD)
        self.down.mul_((given * y_TD).sum() / given.pow(2).sum())

    def forward(self, x):
        chances = (logits := F.linear(x, self.router).float()).softmax(-1)
        k = torch.as_tensor(self.top_k).view(-1, *[1] * (logits.dim() - 1)).expand(*logits.shape[:-1], 1)
        chosen = logits >= logits.detach().sort(-1, descending=True).values.gather(-1, k - 1)
        use = (chosen.float() / k).flatten(0, -2).mean(0)
        self.balance = self.experts * (use * chances.flatten(0, -2).mean(0)).sum()  # 1 where all experts are used alike
        hidden = (F.silu(F.linear(x, self.gate)) * F.linear(x, self.up)).unflatten(-1, (self.experts, -1))
        return F.linear((hidden * (chances * chosen).to(hidden.dtype)[..., None]).flatten(-2), self.down)


def optimiser(parameters, peak, steps):
    optimizer = torch.optim.AdamW(parameters, weight_decay=0, betas=(0.9, 0.95), fused=True)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, max(1, steps), pct_start=0.1, cycle_momentum=False)


def fit(block, x_TD, y_TD, top_ks, steps, batch=1024):
    """A quarter of each batch has each K. Returns the last batch's relative error."""
    optimizer, schedule = optimiser(block.parameters(), 2e-3, steps)
    block.top_k = torch.tensor(top_ks).repeat_interleave(batch // len(top_ks))
    for _ in range(steps):
        chosen = torch.randint(len(x_TD), (len(block.top_k),))
        with torch.autocast("cpu", torch.bfloat16):
            given = block(x_TD[chosen])
        optimizer.zero_grad()
        error = ((given.float() - y_TD[chosen]).pow(2).sum(1) / y_TD[chosen].pow(2).sum(1)).mean()
        (error + BALANCE * block.balance).backward()
        optimizer.step()
        schedule.step()
    return error.item()


def split_blocks(student, inputs, flags, top_ks):
    """Replaces every feed-forward block by a mixture that has learned to do its work."""
    for number, layer in enumerate(student.model.layers):
        start, x_TD, dense = time.time(), inputs[number].float(), layer.mlp.requires_grad_(False)
        y_TD = dense(x_TD)
        layer.mlp = Mixture(x_TD, dense.gate_proj.weight, dense.up_proj.weight, dense.down_proj.weight, flags.experts)
        error = fit(layer.mlp, x_TD, y_TD, top_ks, flags.block_steps)
        print(f"block {number}: relative error {error:.3f} ({time.time() - start:.0f} s)", flush=True)


def distil(student, teacher, rows, top_ks, first, steps, save):
    """Batches of four sequences: one with all experts or half of them, one with an eighth, one with a quarter or an eighth, one drawn
    from all."""
    blocks = [layer.mlp for layer in student.model.layers]
    student.requires_grad_(False)
    parameters = [one.requires_grad_(True) for block in blocks for one in block.parameters()]
    optimizer, schedule = optimiser(parameters, 6e-4, steps - first)
    divergences, start = {}, time.time()
    for step in range(first, steps):
        rng = random.Random(step)
        ids = torch.tensor([rows[(4 * step + i) % len(rows)] for i in range(4)])
        k = torch.tensor([rng.choice(top_ks[:2]), top_ks[3], rng.choice(top_ks[2:]), rng.choice(top_ks)])
        set_top_k(student, k)
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
        schedule.step()
        divergences |= dict(zip(k.tolist(), divergence.tolist()))
        if (step + 1) % 10 == 0 or step + 1 == steps:
            print(f"step {step + 1}: divergence by K: {divergences} ({time.time() - start:.0f} s)", flush=True)
            save(step + 1)


@torch.no_grad()
def perplexity(student, ids, top_k):
    set_top_k(student, top_k)
    losses = [student(input_ids=one[None], labels=one[None]).loss for one in ids]
    return torch.stack(losses).mean().exp().item()


@torch.no_grad()
def router_spread(student, ids, top_k):
    """Returns for every layer the standard deviation of a token's router logits over experts, mean over tokens."""
    spreads, hooks = [[] for _ in student.model.layers], []
    for layer, into in zip(student.model.layers, spreads):
        hooks.append(layer.mlp.register_forward_pre_hook(
            lambda block, given, into=into: into.append(F.linear(given[0], block.router).std(-1).mean())))
    perplexity(student, ids, top_k)
    for hook in hooks:
        hook.remove()
    return [torch.stack(of_layer).mean().item() for of_layer in spreads]


def print_measures(student, tokenizer, file, top_ks):
    """Prints perplexity on the first 16 x 1,024 tokens of a text, and the spread of router logits on the first 2 x 1,024."""
    text = tokenizer(file.read_text(encoding="utf-8"), add_special_tokens=False).input_ids
    ids = torch.tensor(text[:16 * 1024]).view(16, 1024)
    for k in top_ks:
        print(f"perplexity at K = {k}: {perplexity(student, ids, k):.1f}", flush=True)
    spreads = router_spread(student, ids[:2], top_ks[0])
    print(f"spread of router logits: median {statistics.median(spreads):.3f}, by layer {[round(one, 3) for one in spreads]}", flush=True)


@torch.no_grad()
def write(student, flags, rows):
    """OLMoE normalises queries and keys over their whole width, Llama does not. The root mean square of queries hardly varies: it is
    their norm's weight. Keys are made so small that the norm's epsilon outweighs them, which makes their norm linear. An adapter of
    k_proj would be magnified 2^17 times: leave it out of lora.targets."""
    config, small, lengths = student.config, 2.0**-17, []
    keys = config.hidden_size // config.num_attention_heads * config.num_key_value_heads
    set_top_k(student, flags.experts)
    for layer in student.model.layers:
        layer.self_attn.q_proj.register_forward_hook(
            lambda module, given, made: lengths.append(made[:, 1:].float().pow(2).mean(-1).sqrt().mean().item()))
    student.model(torch.tensor(rows[:8]))
    weights = {name: weight for name, weight in student.state_dict().items() if ".mlp." not in name and "lm_head" not in name}
    for number, layer in enumerate(student.model.layers):
        at, block = f"model.layers.{number}.", layer.mlp
        weights[at + "self_attn.k_proj.weight"] = weights[at + "self_attn.k_proj.weight"] * small
        weights[at + "self_attn.k_norm.weight"] = torch.full((keys,), config.rms_norm_eps**0.5 / small)
        weights[at + "self_attn.q_norm.weight"] = torch.full((config.hidden_size,), lengths[number])
        weights[at + "mlp.gate.weight"] = block.router
        for name, weight in (("gate", block.gate), ("up", block.up), ("down", block.down.T)):
            for e, part in enumerate(weight.chunk(flags.experts)):
                weights[at + f"mlp.experts.{e}.{name}_proj.weight"] = part.T if name == "down" else part
    weights = {name: weight.detach().bfloat16().contiguous() for name, weight in weights.items()}
    settings = json.loads((flags.dense / "config.json").read_text())
    settings |= {"architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "num_experts": flags.experts,
                 "num_experts_per_tok": flags.experts, "intermediate_size": config.intermediate_size // flags.experts,
                 "norm_topk_prob": False, "clip_qkv": None, "rope_scaling": None}
    (flags.out / "config.json").write_text(json.dumps(settings, indent=1) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "LICENSE"):
        shutil.copy(flags.dense / name, flags.out)
    # The weights come last: a folder that has them is complete (tools/studies).
    put(flags.out / "model.safetensors", lambda file: save_file(weights, file, metadata={"format": "pt"}))


def recipe(flags, rows):
    """Returns a digest of what decides the base: this script, its flags, and the training sequences."""
    given = (pathlib.Path(__file__).read_text(encoding="utf-8"), str(flags.dense), flags.experts, flags.block_steps, flags.steps, rows)
    return hashlib.sha256(repr(given).encode()).hexdigest()


def load_unfinished(file, made_by):
    """Returns the number of steps done and the blocks."""
    kept, *rest = torch.load(file, weights_only=False)
    if kept != made_by:
        raise SystemExit(f"{file}: of another version of this script, other flags or other texts; remove it to begin again")
    return rest


def main():
    flags = arguments()
    flags.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(flags.dense)
    teacher, student = (AutoModelForCausalLM.from_pretrained(flags.dense, dtype=dtype).eval() for dtype in (torch.bfloat16, torch.float32))
    rows = sequences(tokenizer, flags.text, random.Random(0))
    top_ks = [max(1, flags.experts >> shift) for shift in range(4)]
    unfinished = flags.out / "unfinished.pt"
    made_by = recipe(flags, rows)

    def save(step):
        blocks = [layer.mlp for layer in student.model.layers]
        put(unfinished, lambda file: torch.save((made_by, step, blocks), file))

    if not unfinished.exists():
        split_blocks(student, block_inputs(teacher, rows[:112]), flags, top_ks)
        save(0)
    first, blocks = load_unfinished(unfinished, made_by)
    for layer, block in zip(student.model.layers, blocks):
        layer.mlp = block
    distil(student, teacher, rows, top_ks, first, flags.steps, save)
    write(student, flags, rows)
    if flags.test:
        print_measures(student, tokenizer, flags.test, top_ks)


if __name__ == "__main__":
    main()
