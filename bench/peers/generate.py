"""Compares greedy generation with transformers' generate(), and extrapolates the time of a full evaluation.

The model is two layers of OLMoE at its true widths, bf16, random weights. Prompts come from the eight commonsense sets
($EVENKEEL_DATA), with the same token ids and batches on both sides and equally many new tokens. The peer pads on the
left. With random weights no greedy guess is right, so the extrapolated evaluation is the slowest case. `--extrapolate`
times whole evaluations with one and with two layers; 16 layers take the first plus fifteen times the difference. It
also prints the time that the products with the base would take at this machine's limits.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

from train_step import BUILD, CONFIG, checkpoint, measure, peak_gib

ROWS = {"boolq": 3270, "piqa": 1838, "siqa": 1954, "hellaswag": 10042, "winogrande": 1267, "arc_e": 2376, "arc_c": 1172,
        "obqa": 500}
LAYERS = 16


def peer_run(job):
    """Runs the peer in its own process. Returns what generate.cpp prints."""
    import torch
    from transformers import OlmoeForCausalLM

    torch.set_num_threads(job.threads)
    model = OlmoeForCausalLM.from_pretrained(job.model, dtype=torch.bfloat16, num_experts_per_tok=job.top_k).eval()
    prompts = json.loads(job.prompts.read_text())
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    outputs = []
    begin = time.perf_counter()
    for first in range(0, len(prompts), job.batch):
        batch = prompts[first:first + job.batch]
        longest = max(map(len, batch))
        ids = torch.tensor([[CONFIG["pad_token_id"]] * (longest - len(one)) + one for one in batch])
        mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in batch])
        with torch.inference_mode():
            done = model.generate(input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=job.new,
                                  min_new_tokens=job.new, eos_token_id=None, pad_token_id=CONFIG["pad_token_id"])
        outputs += done[:, longest:].tolist()
    return {"seconds": time.perf_counter() - begin, "outputs": outputs, "peak_gib": peak_gib()}


def own(job, model, top_k, *more):
    return measure([BUILD / "generate", model, "--tokenizer", job.tokenizer, "--data", job.data, "--rows", job.rows,
                    "--batch", job.batch, "--new", job.new, "--top-k", top_k, "--threads", job.threads, *more])


def agreement(ours, theirs):
    """Returns the share of new tokens up to the first difference of each prompt. Rounding differs, and random weights
    have near ties.
    """
    same = sum(next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), len(a)) for a, b in zip(ours, theirs))
    return same / sum(map(len, ours))


def compare(job, top_k):
    model = checkpoint(BUILD / "olmoe", 2)
    with tempfile.TemporaryDirectory() as work:
        prompts = pathlib.Path(work) / "prompts.json"
        peer = [sys.executable, __file__, "--peer", "--model", model, "--prompts", prompts, "--new", job.new, "--top-k",
                top_k, "--threads", job.threads, "--batch", job.peer_batch or job.batch]
        runs = [(own(job, model, top_k, "--prompts", prompts, "--cache", job.cache), measure(peer))
                for _ in range(job.repeats)]
    ours, theirs = runs[-1]
    tokens = sum(map(len, ours["outputs"]))
    assert tokens == sum(map(len, theirs["outputs"])) == 8 * job.rows * job.new
    row = {"top_k": top_k, "prompts": len(ours["outputs"]), "prompt_tokens": ours["prompt_tokens"], "new_tokens": tokens,
           "batch": job.batch, "peer_batch": job.peer_batch or job.batch, "cache": job.cache,
           "agreement": agreement(ours["outputs"], theirs["outputs"])}
    for side, results in (("ours", [a for a, _ in runs]), ("peer", [b for _, b in runs])):
        seconds = statistics.median(r["seconds"] for r in results)
        row[side] = {"seconds": seconds, "new_tokens_per_second": tokens / seconds,
                     "peak_gib": max(r["peak_gib"] for r in results)}
    row["ours"]["prefill_seconds"] = statistics.median(a["prefill"] for a, _ in runs)
    row["times_faster"] = row["peer"]["seconds"] / row["ours"]["seconds"]
    print(f"K={top_k}: {row['prompts']} prompts of {row['prompt_tokens'] / row['prompts']:.0f} tokens, {job.new} new each: "
          f"ours {row['ours']['seconds']:.1f} s (prompts {row['ours']['prefill_seconds']:.1f}), {row['ours']['peak_gib']:.2f} GiB "
          f"({job.cache} cache); peer {row['peer']['seconds']:.1f} s, {row['peer']['peak_gib']:.2f} GiB; "
          f"x{row['times_faster']:.2f}; the same tokens: {row['agreement']:.0%}", flush=True)
    return row


def weighted(per_row):
    """Returns the mean of a figure per row over all rows of all sets."""
    return sum(ROWS[task] * per_row[task] for task in ROWS) / sum(ROWS.values())


def extrapolate(job):
    hours, limits, rows = {}, {}, sum(ROWS.values())
    for top_k in job.top_k:
        one, two = (own(job, checkpoint(BUILD / "olmoe", layers), top_k, "--evaluate", "--cache", job.cache)
                    for layers in (1, 2))
        mean = [weighted(run["seconds_per_row"]) for run in (one, two)]
        hours[top_k] = rows * (mean[0] + (LAYERS - 1) * (mean[1] - mean[0])) / 3600
        limits[top_k] = rows * LAYERS * weighted(two["layer_limit_per_row"]) / 3600
        print(f"K={top_k}: {mean[0]:.3f} s a row with one layer, {mean[1]:.3f} with two (weighted by the sets' rows); "
              f"{mean[0]:.3f} + {LAYERS - 1} x {mean[1] - mean[0]:.3f} = {mean[0] + (LAYERS - 1) * (mean[1] - mean[0]):.2f} s "
              f"with {LAYERS}; x {rows:,} rows = {hours[top_k]:.1f} h; {weighted(two['tokens_per_row']):.0f} tokens a row through the "
              f"model, whose products with the base take {limits[top_k]:.1f} h at least", flush=True)
    print(f"all budgets: {sum(hours.values()):.1f} h (limit {sum(limits.values()):.1f}), at {job.new} new tokens at most and "
          f"batches of {job.batch}")
    return {"layers": LAYERS, "rows": rows, "hours": hours, "limits": limits, "new": job.new, "batch": job.batch}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, help="folder of the commonsense sets")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="OLMoE's tokenizer.json")
    parser.add_argument("--rows", type=int, default=16, help="of each of the eight sets")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--peer-batch", type=int, help="where the peer is faster with another")
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--top-k", type=int, nargs="+", default=[8, 1])
    parser.add_argument("--cache", default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1, help="times the two sides alternate")
    parser.add_argument("--extrapolate", action="store_true", help="whole evaluations, to 16 layers; no peer")
    parser.add_argument("--json", type=pathlib.Path, help="append one line per comparison to this file")
    parser.add_argument("--peer", action="store_true", help="run the peer's half and print its JSON line")
    parser.add_argument("--model", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--prompts", type=pathlib.Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    job = parse()
    if job.peer:
        job.top_k = job.top_k[0]
        print(json.dumps(peer_run(job)))
        return
    rows = [extrapolate(job)] if job.extrapolate else [compare(job, top_k) for top_k in job.top_k]
    if job.json:
        with job.json.open("a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
