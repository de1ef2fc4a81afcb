#!/usr/bin/env python3
"""Compares one LoRA training step with transformers + PEFT, on some layers of OLMoE at true widths.

The model has hidden size 2048, 64 experts of width 1024, a vocabulary of 50304 and a bf16 base. LoRA in fp32 has rank
20 on attention and every expert. The loss is at every position, the optimizer is AdamW, and all sides get the same
token ids. The peers are v4 (transformers 4.57, PEFT 0.17: one linear per expert) and v5 (transformers 5, PEFT 0.21:
fused experts, grouped_mm). Each side runs in its own process on the same checkpoint with the same number of threads.
The sides alternate.

The output has the median step after warm-up, the two warm-up steps, the peak resident memory of the steps without
loading, the ratio of ours to the peer's, and the largest difference of losses. The exit code is 1 if losses differ by
more than 1e-2, and with --check if a ratio is above its limit.

--data, --tokenizer   use rows of the commonsense training set with the loss on the answers; peers pad to the longest of
                      a batch, and padding is not counted in tokens per second
--parts               also measures the parts of our step against the machine's limits (step_parts): multiply-adds in
                      registers and reads, next to LibTorch's square product
--busy                runs another busy process next to every side
--peer-dtype float32  gives the peers a float32 base, because with AVX2 alone LibTorch multiplies bfloat16 on one thread
                      and a step takes minutes

    make bench-peers                    1 x 256 and 8 x 256 tokens, K = 1 and 8, two layers, v4
    .venv-v4/bin/python bench/peers/train_step.py --batch 1 --top-k 1 --layers 1 2 --peers v4 v5 --parts --repeats 3
"""
import argparse
import contextlib
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
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS = {"v4": {"target_modules": [*ATTENTION, "gate_proj", "up_proj", "down_proj"]},
           "v5": {"target_modules": ATTENTION, "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}}
WARM_UP = 2
SPEED_LIMIT, MEMORY_LIMIT, LOSS_LIMIT = 1.0, 0.8, 1e-2


def peak_gib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**20
    raise OSError("no VmHWM in /proc/self/status")


def ids_of(step, count, vocabulary):
    """Draws ids like train_step.cpp: the upper bits of a linear congruential generator modulo 2^64."""
    state, ids = 2 * step + 1, []
    for _ in range(count):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append((state >> 33) % vocabulary)
    return ids


def batches_of(job, vocabulary):
    """Returns the model's inputs per micro-batch."""
    import torch

    if job.rows is None:
        for step in range(job.steps):
            for ids in torch.tensor(ids_of(step, job.accumulation * job.batch[0] * job.length, vocabulary)).view(job.accumulation, job.batch[0], job.length):
                yield {"input_ids": ids, "labels": ids}
        return
    rows = json.loads(job.rows.read_text())
    for first in range(0, len(rows), job.batch[0]):
        batch = rows[first:first + job.batch[0]]
        longest = max(len(row["ids"]) for row in batch)

        def padded(numbers_of, fill):
            return torch.tensor([numbers_of(row) + [fill] * (longest - len(row["ids"])) for row in batch])

        yield {"input_ids": padded(lambda row: row["ids"], CONFIG["pad_token_id"]),
               "attention_mask": padded(lambda row: [1] * len(row["ids"]), 0),
               "labels": padded(lambda row: [-100] * row["first_target"] + row["ids"][row["first_target"]:], -100)}


def peer_step(job):
    """Runs the peer in its own process. Returns what train_step.cpp prints."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import OlmoeForCausalLM

    torch.set_num_threads(job.threads)
    torch.manual_seed(7)
    base = OlmoeForCausalLM.from_pretrained(job.model, dtype=getattr(torch, job.peer_dtype), num_experts_per_tok=job.top_k[0])
    model = get_peft_model(base, LoraConfig(r=job.rank, lora_alpha=job.rank, **TARGETS[job.peer])).train()
    adapted = [p for p in model.parameters() if p.requires_grad]
    for p in adapted:
        p.data = p.data.float()
    optimizer = torch.optim.AdamW(adapted, lr=2e-4, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.01, fused=True)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    seconds, losses = [], []
    micro_batches = list(batches_of(job, base.config.vocab_size))
    for first in range(0, len(micro_batches), job.accumulation):
        begin, mean = time.perf_counter(), 0
        optimizer.zero_grad()
        for batch in micro_batches[first:first + job.accumulation]:
            loss = model(**batch, use_cache=False).loss / job.accumulation
            loss.backward()
            mean += loss.item()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        losses.append(mean)
    return {"who": job.peer, "path": job.peer_dtype, "seconds": seconds, "losses": losses, "peak_gib": peak_gib()}


def checkpoint(folder, layers):
    """Creates the random checkpoint that all sides read."""
    folder = folder.with_name(f"{folder.name}-{layers}-layers")
    if (folder / "config.json").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as work:
        config = pathlib.Path(work) / "config.json"
        config.write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
        subprocess.run([BUILD / "evenkeel", "init", config, "--out", folder, "--dtype", "bfloat16"], check=True)
    return folder


def measure(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def neighbour(busy):
    """Starts a process that uses a processor all the time."""
    process = subprocess.Popen(["sh", "-c", "while :; do :; done"]) if busy else None
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def compare(job, layers, batch, top_k):
    model = checkpoint(job.model, layers)
    flags = [model, "--batch", batch, "--length", job.length, "--top-k", top_k, "--rank", job.rank, "--steps", job.steps,
             "--threads", job.threads, "--accumulation", job.accumulation]
    real = job.data is not None
    rows = [] if not real else ["--rows", BUILD / "train_step_rows.json"]
    ours = [BUILD / "train_step", *flags, "--products", job.products, "--merge-tokens", job.merge_tokens, *rows]
    sides = {"ours": ours + (["--data", job.data, "--tokenizer", job.tokenizer] if real else []),
             **{peer: [ROOT / f".venv-{peer}/bin/python", __file__, *flags, "--peer", peer, "--peer-dtype", job.peer_dtype, *rows] for peer in job.peers}}
    results = {side: [] for side in sides}
    with neighbour(job.busy):
        for _ in range(job.repeats):
            for side, command in sides.items():
                results[side].append(measure(command))
    row = {"layers": layers, "batch": batch, "accumulation": job.accumulation, "merge_tokens": job.merge_tokens, "length": job.length, "top_k": top_k, "threads": job.threads, "busy": job.busy,
           "products": job.products, "peer_dtype": job.peer_dtype, "rows": "commonsense" if real else "random"}
    tokens = results["ours"][0]["tokens"][WARM_UP:]
    for side, runs in results.items():
        steps = [s for run in runs for s in run["seconds"][WARM_UP:]]
        rate = statistics.median(sum(tokens) / sum(run["seconds"][WARM_UP:]) for run in runs)
        row[side] = {"s_per_step": statistics.median(steps), "best": min(steps), "worst": max(steps), "losses": runs[0]["losses"],
                     "first": [statistics.median(run["seconds"][i] for run in runs) for i in range(WARM_UP)],
                     "tokens_per_second": rate, "peak_gib": max(run["peak_gib"] for run in runs)}
    for peer in job.peers:
        ours, theirs = row["ours"], row[peer]
        theirs["time_ratio"] = ours["s_per_step"] / theirs["s_per_step"]
        theirs["first_ratio"] = sum(ours["first"]) / sum(theirs["first"])
        theirs["memory_ratio"] = ours["peak_gib"] / theirs["peak_gib"]
        theirs["loss_apart"] = max(abs(a - b) / b for a, b in zip(ours["losses"], theirs["losses"]))
    return row


def add_parts(job, row):
    """Adds the limits of our step: those of the machine, and the fraction of its limit that each part reaches."""
    row["limits"] = measure([BUILD / "step_parts", "--batch", row["batch"], "--length", row["length"], "--top-k", row["top_k"], "--layers",
                             row["layers"], "--rank", job.rank, "--threads", job.threads, "--products", job.products])
    base = [part for part in row["limits"]["parts"] if part["part"] in ("head", "attention projections", "experts")]
    row["limit_s"] = sum(part["limit"] for part in base)
    row["share"] = row["limit_s"] / row["ours"]["s_per_step"]
    limits = row["limits"]
    row["gemm_s"] = sum(part["limit"] * (limits["gflops"] / limits["library_gflops"] if part["bound"] == "operations" else 1) for part in base)
    row["gemm_share"] = row["gemm_s"] / row["ours"]["s_per_step"]


def seconds(steps):
    return " and ".join(f"{step:.2f}" for step in steps) + " s"


def print_row(job, row):
    ours = row["ours"]
    shape = f"{row['batch']} x {row['length']}" if row["rows"] == "random" else f"{row['batch']} {row['rows']} rows"
    if row["accumulation"] > 1:
        shape = f"{row['accumulation']} micro-batches of {shape}, merged up to {row['merge_tokens']} tokens"
    print(f"{row['layers']} layers, {shape}, K={row['top_k']}{', busy' if row['busy'] else ''}: "
          f"ours {ours['s_per_step']:.2f} s ({ours['best']:.2f} to {ours['worst']:.2f}), {ours['tokens_per_second']:.0f} tokens/s, "
          f"{ours['peak_gib']:.2f} GiB ({row['products']}); the first {seconds(ours['first'])}")
    for peer in job.peers:
        theirs = row[peer]
        print(f"    {peer}{'' if job.peer_dtype == 'bfloat16' else ' in ' + job.peer_dtype} {theirs['s_per_step']:.2f} s ({theirs['best']:.2f} to {theirs['worst']:.2f}), {theirs['tokens_per_second']:.0f} tokens/s, {theirs['peak_gib']:.2f} GiB; "
              f"time x{theirs['time_ratio']:.2f}, memory x{theirs['memory_ratio']:.2f}; the first {seconds(theirs['first'])}, x{theirs['first_ratio']:.2f}; losses within {theirs['loss_apart']:.1e}")
    if "limits" in row:
        limits = row["limits"]
        print(f"    this machine: {limits['gflops']:.0f} Gop/s with the base ({limits['float32_gflops']:.0f} in float32), {limits['gbytes']:.1f} GB/s read; products with the base at "
              f"that: {row['limit_s']:.2f} s, {100 * row['share']:.0f} % of our step; at the library's {limits['library_gflops']:.0f} Gop/s for two square "
              f"matrices: {row['gemm_s']:.2f} s, {100 * row['gemm_share']:.0f} %")
        for part in limits["parts"]:
            print(f"      {part['part']:24} {part['seconds']:7.3f} s, {100 * part['share']:3.0f} % of its limit by {part['bound']}")
    sys.stdout.flush()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=BUILD / "olmoe", help="where checkpoints are kept")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--accumulation", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--merge-tokens", type=int, default=2048, help="ours are one pass while they have so many tokens together; 0: never")
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--top-k", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--layers", type=int, nargs="+", default=[2])
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="times the sides alternate")
    parser.add_argument("--peers", nargs="*", choices=sorted(TARGETS), default=["v4"])
    parser.add_argument("--peer-dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of the peers' base")
    parser.add_argument("--products", default="measured", help="our kernels: own, dot, tile, native or widen for all, or measured")
    parser.add_argument("--busy", action="store_true", help="beside a process that never rests")
    parser.add_argument("--parts", action="store_true", help="time the parts of our step against the machine's limits")
    parser.add_argument("--data", type=pathlib.Path, help="folder of the commonsense sets: their training rows, loss on the answers")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="OLMoE's tokenizer.json")
    parser.add_argument("--rows", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is above its limit")
    parser.add_argument("--json", type=pathlib.Path, help="append one line per comparison to this file")
    parser.add_argument("--peer", choices=sorted(TARGETS), help="run a peer's half and print its JSON line")
    job = parser.parse_args()
    if job.steps <= WARM_UP:
        parser.error(f"--steps: got {job.steps}, allowed: more than {WARM_UP}, which warm up")
    return job


def main():
    job = parse()
    if job.peer:
        print(json.dumps(peer_step(job)))
        return 0
    rows = []
    for layers in job.layers:
        for batch in job.batch:
            for top_k in job.top_k:
                rows.append(compare(job, layers, batch, top_k))
                if job.parts:
                    add_parts(job, rows[-1])
                print_row(job, rows[-1])
    if job.json:
        with job.json.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    compared = [row[peer] for row in rows for peer in job.peers]
    apart = [theirs for theirs in compared if theirs["loss_apart"] > LOSS_LIMIT]
    above = [theirs for theirs in compared if theirs["time_ratio"] > SPEED_LIMIT or theirs["memory_ratio"] > MEMORY_LIMIT]
    return 1 if apart or (job.check and above) else 0


if __name__ == "__main__":
    sys.exit(main())
