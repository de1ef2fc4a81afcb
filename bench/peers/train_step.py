#!/usr/bin/env python3
"""One LoRA training step beside transformers 4.57 + PEFT 0.17, in the same sitting, on a slice of OLMoE at true widths.

Two layers, hidden 2048, 64 experts of width 1024, vocabulary 50304, bf16 base, fp32 LoRA of rank 20 on attention and every
expert, loss at every position, AdamW. Each side runs in its own process on the same checkpoint and the same number of
threads; the sides alternate. Printed: the median step after warm-up, the peak resident memory of the steps (loading
left out on both sides), and our share of the peer's. Exit 1 with --check when a ratio is above its limit.

    make bench-peers                    8 x 256 tokens, K = 1 and 8
    .venv-v4/bin/python bench/peers/train_step.py --batch 1 --top-k 1 --repeats 3
"""
import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
CONFIG = {
    "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "vocab_size": 50304, "hidden_size": 2048,
    "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 16,
    "num_experts": 64, "num_experts_per_tok": 8, "norm_topk_prob": False, "max_position_embeddings": 4096,
    "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
    "attention_bias": False, "attention_dropout": 0.0, "clip_qkv": None, "initializer_range": 0.02, "pad_token_id": 1,
    "eos_token_id": 50279, "torch_dtype": "bfloat16"}
WARM_UP = 2
SPEED_LIMIT, MEMORY_LIMIT = 1.0, 0.8


def peak_gib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise OSError("no VmHWM in /proc/self/status")


def peer_step(job):
    """The peer's half, in a process of its own; returns what train_step.cpp prints."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import OlmoeForCausalLM

    torch.set_num_threads(job.threads)
    torch.manual_seed(7)
    base = OlmoeForCausalLM.from_pretrained(job.model, dtype=torch.bfloat16, num_experts_per_tok=job.top_k)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(base, LoraConfig(r=job.rank, lora_alpha=job.rank, target_modules=targets)).train()
    adapted = [p for p in model.parameters() if p.requires_grad]
    assert all(p.dtype == torch.float32 for p in adapted)
    optimizer = torch.optim.AdamW(adapted, lr=2e-4, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.01, fused=True)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    seconds, losses = [], []
    for _ in range(job.steps):
        ids = torch.randint(base.config.vocab_size, (job.batch, job.length))
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(loss.item())
    return {"who": "transformers+PEFT", "path": "bf16", "seconds": seconds, "losses": losses, "peak_gib": peak_gib()}


def checkpoint(folder):
    """The random checkpoint both sides read, made once."""
    if (folder / "config.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        config = pathlib.Path(work) / "config.json"
        config.write_text(json.dumps(CONFIG))
        subprocess.run([BUILD / "evenkeel", "init", config, "--out", folder, "--dtype", "bfloat16"], check=True)
    return folder


def measure(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(job, top_k):
    flags = [job.model, "--batch", job.batch, "--length", job.length, "--top-k", top_k, "--rank", job.rank, "--steps",
             job.steps, "--threads", job.threads]
    sides = {"ours": [BUILD / "train_step", *flags], "peer": [sys.executable, __file__, "--peer", *flags]}
    steps, peaks, paths = {"ours": [], "peer": []}, {"ours": [], "peer": []}, {}
    for _ in range(job.repeats):
        for side, command in sides.items():
            result = measure(command)
            steps[side] += result["seconds"][WARM_UP:]
            peaks[side].append(result["peak_gib"])
            paths[side] = result["path"]
    row = {"batch": job.batch, "length": job.length, "top_k": top_k, "threads": job.threads, "path": paths["ours"]}
    for side in sides:
        row[side] = {"s_per_step": statistics.median(steps[side]), "best": min(steps[side]), "peak_gib": max(peaks[side])}
    row["time_ratio"] = row["ours"]["s_per_step"] / row["peer"]["s_per_step"]
    row["memory_ratio"] = row["ours"]["peak_gib"] / row["peer"]["peak_gib"]
    return row


def print_row(row):
    ours, peer = row["ours"], row["peer"]
    print(f"{row['batch']} x {row['length']}, K={row['top_k']}: ours {ours['s_per_step']:.2f} s, {ours['peak_gib']:.2f} GiB "
          f"({row['path']}); peer {peer['s_per_step']:.2f} s, {peer['peak_gib']:.2f} GiB; "
          f"time x{row['time_ratio']:.2f}, memory x{row['memory_ratio']:.2f}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=BUILD / "olmoe-2-layers")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--top-k", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="times the two sides alternate")
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is above its limit")
    parser.add_argument("--json", type=pathlib.Path, help="append one line per comparison to this file")
    parser.add_argument("--peer", action="store_true", help="run the peer's half and print its JSON line")
    return parser.parse_args()


def main():
    job = parse()
    if job.peer:
        job.top_k = job.top_k[0]
        print(json.dumps(peer_step(job)))
        return 0
    job.model = checkpoint(job.model)
    rows = [compare(job, top_k) for top_k in job.top_k]
    for row in rows:
        print_row(row)
    if job.json:
        with job.json.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    above = [r for r in rows if r["time_ratio"] > SPEED_LIMIT or r["memory_ratio"] > MEMORY_LIMIT]
    return 1 if job.check and above else 0


if __name__ == "__main__":
    sys.exit(main())
