"""Runs the same 20 optimiser steps on both sides: here with autograd and torch.optim, there with the lora_curve program."""
import json

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from peer import PROGRAM, run

OPTIMIZER = {"lr": 4e-3, "betas": [0.9, 0.95], "eps": 1e-5, "weight_decay": 0.01}
RANK, ALPHA = 3, 7.0
STEPS = 20


def batches(vocab_size, seed, steps=STEPS):
    """Returns four batches of sequences that repeat a motif, used in turn: unequal lengths, with the loss on the last
    part only.
    """
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high: int(torch.randint(low, high, (1,), generator=generator))  # noqa: E731
    distinct = []
    for _ in range(4):
        rows = []
        for _ in range(draw(2, 5)):
            motif = torch.randint(3, vocab_size, (draw(2, 7),), generator=generator).tolist()
            ids = (motif * 12)[: draw(5, 33)]
            rows.append({"ids": ids, "first_target": draw(1, len(ids) - 1)})
        distinct.append(rows)
    return [distinct[step % 4] for step in range(steps)]


def padded(rows):
    """Returns right-padded tensors for transformers: ids, mask, labels."""
    width = max(len(row["ids"]) for row in rows)
    ids = torch.ones(len(rows), width, dtype=torch.long)
    mask, labels = torch.zeros_like(ids), torch.full_like(ids, -100)
    for i, row in enumerate(rows):
        count = len(row["ids"])
        ids[i, :count] = torch.tensor(row["ids"])
        mask[i, :count] = 1
        labels[i, row["first_target"]:count] = ids[i, row["first_target"]:count]
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def fill_adapters(model, seed):
    """Fills adapters with nonzero factors, because A has no gradient if B = 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                scale = 0.5 / parameter.shape[-1] ** 0.5 if "lora_A" in name else 0.15
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def distill(model, batch, teacher, top_k, weight, temperature):
    """Adds the gradient of weight tau^2 KL(p(K) || p(K')), averaged over targets. teacher: logits with the model's own K."""
    routers = [module for module in model.modules() if hasattr(module, "top_k")]
    own = [router.top_k for router in routers]
    for router in routers:
        router.top_k = top_k
    student = model(**batch, use_cache=False).logits
    for router, k in zip(routers, own, strict=True):
        router.top_k = k
    targets = batch["labels"][:, 1:] != -100
    p, q = (torch.log_softmax(logits[:, :-1][targets] / temperature, -1) for logits in (teacher, student))
    (weight * temperature ** 2 * (p.exp() * (p - q)).sum(-1).mean()).backward()


def train(model, job):
    """Returns (losses, gradients of the first step by parameter name)."""
    adapted = {name: p for name, p in model.named_parameters() if "lora_" in name}
    settings = job["optimizer"]
    kind = torch.optim.SGD if "momentum" in settings else torch.optim.AdamW
    optimizer = kind(adapted.values(), **settings)
    losses, gradients = [], {}
    for rows in job["batches"]:
        optimizer.zero_grad()
        batch = padded(rows)
        output = model(**batch, use_cache=False)
        loss = output.loss
        loss.backward()
        if "distillation" in job:
            distill(model, batch, output.logits.detach(), **job["distillation"])
        # Some families do not run experts without a token; in OLMoE they have gradient zero
        for parameter in adapted.values():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        gradients = gradients or {name: p.grad.clone() for name, p in adapted.items()}
        losses.append(loss.item())
        if job.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(adapted.values(), job["max_grad_norm"])
        optimizer.step()
    return losses, gradients


def train_ours(model_folder, adapter_folder, job, work):
    """Returns (losses, first gradients, last adapter), the tensors by PEFT's saved names."""
    (work / "job.json").write_text(json.dumps(job))
    run(model_folder, adapter_folder, work / "job.json", work / "ours", program=PROGRAM.with_name("lora_curve"))
    losses = json.loads((work / "ours" / "losses.json").read_text())
    return losses, *(load_file(work / "ours" / part / "adapter_model.safetensors") for part in ("gradients", "adapter"))


def saved_names(tensors):
    """Renames tensors to the names under which PEFT saves them."""
    return {name.replace(".default.", "."): tensor for name, tensor in tensors.items()}


def assert_curves_equal(ours, theirs, learns=0.8):
    assert len(ours) == len(theirs) == STEPS
    assert theirs[-1] < learns * theirs[3], f"the peer itself did not learn, from {theirs[3]:.2f} to {theirs[-1]:.2f}: the comparison would show little"
    for step, (a, b) in enumerate(zip(ours, theirs)):
        assert abs(a - b) <= 1e-4 * abs(b), f"step {step}: loss {a} against {b}"


def assert_tensors_close(ours, theirs, tolerance, what):
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())[:6]
    for name, expected in theirs.items():
        error = (ours[name] - expected).norm().item()
        assert error <= tolerance * expected.norm().item(), f"{what} of {name}: {error:.2e} of {expected.norm():.2e}"


def assert_twenty_steps_agree(base, targets, tmp_path, seed, ours=None, learns=0.8, **changes):
    """Compares twenty steps from the same adapter, of AdamW unless `changes` has another optimizer. `ours`: our names of
    `targets`, if they differ. `learns`: the peer's last loss must be below this fraction of its fourth one."""
    base.save_pretrained(tmp_path / "model")
    model = get_peft_model(base, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0))
    fill_adapters(model, seed)
    model.save_pretrained(tmp_path / "adapter")
    job = {"targets": ours or targets, "alpha": ALPHA, "rank": RANK, "optimizer": OPTIMIZER,
           "batches": batches(base.config.vocab_size, seed + 4)} | changes

    losses, gradients = train(model, job)
    our_losses, our_gradients, our_adapter = train_ours(tmp_path / "model", tmp_path / "adapter", job, tmp_path)

    assert_curves_equal(our_losses, losses, learns)
    assert_tensors_close(our_gradients, saved_names(gradients), 1e-3, "first gradient")
    trained = {n: p.detach() for n, p in model.named_parameters() if "lora_" in n}
    assert_tensors_close(our_adapter, saved_names(trained), 2e-3, "value after 20 steps")
