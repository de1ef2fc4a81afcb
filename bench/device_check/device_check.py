#!/usr/bin/env python3
"""Checks correctness and speed of the program on a machine with a GPU, in a few minutes.

    python3 bench/device_check/device_check.py --device cuda --programs build --work /dev/shm/check --out check.json

Requires a Python with torch, transformers and PEFT (the peer), and the programs evenkeel, train_step, generate and
nn_test built against the same LibTorch. Each part has its own time limit. If one fails, it is reported and the others
continue. The parts are:

    ceilings   the limits of the GPU: copy, product, grouped products of 4, 64 and 512 rows
    tests      unit tests of the engine on the GPU against float64 on the CPU
    bits       two processes train the built-in model to the same adapter
    steps      a random OLMoE-1B-7B at several experts per token and batch sizes, compared with transformers + PEFT on
               the same ids and weights
    generate   greedy answers to prompts, compared with generate()
    evaluate   time of scoring real questions (--data) with the random model
    round      eight clients train UB-SMoE on it: seconds by part; killed and resumed to the same bits

The results are stored as JSON after each part. `--tiny` is a trial on a CPU with a small model and two shapes.
"""
import argparse
import hashlib
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

import torch

import ceilings
import checkpoint
import roofline

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WARM_UP, STEPS, RANK = 2, 8, 20
SHAPES = [(batch, length, top_k) for batch, length in ((1, 256), (8, 256), (8, 512)) for top_k in (1, 2, 4, 8)]
TINY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": 1024, "num_experts": 8, "num_experts_per_tok": 8, "eos_token_id": 0}
TOKENIZER = ROOT / "assets/tiny-olmoe/tokenizer.json"
LOSS_LIMIT = 1e-2


class Check:
    """The options, the results so far, and how to call programs."""

    def __init__(self, options):
        self.options, self.figures = options, {}
        self.device = torch.device(options.device)
        self.config = json.loads((ROOT / "configs/full-size/model.json").read_text()) | (TINY if options.tiny else {})
        self.shapes = [(2, 32, 1), (2, 32, 8)] if options.tiny else SHAPES
        self.begin = time.monotonic()

    def program(self, name, *arguments, limit=120, **environment):
        command = [str(self.options.programs / name), *map(str, arguments)]
        return self.call(command, limit, environment)

    def peer(self, *arguments, limit=200):
        return self.call([sys.executable, str(HERE / "peer.py"), *map(str, arguments), "--device", self.options.device], limit, {})

    def call(self, command, limit, environment):
        """Returns the command's stdout. Its stderr goes to a file."""
        begin = time.monotonic()
        with (self.options.work / "errors.txt").open("a") as errors:
            print("$", " ".join(command), file=errors, flush=True)
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=limit,
                                  env=os.environ | {name: str(value) for name, value in environment.items()})
        print(f"   {time.monotonic() - begin:6.1f} s  {' '.join(command)[:150]}", flush=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {self.last_error()}")
        return done.stdout

    def last_error(self):
        lines = (self.options.work / "errors.txt").read_text().splitlines()
        return " | ".join(lines[-4:])[:600]

    def store(self):
        self.options.out.write_text(json.dumps(self.figures, indent=1) + "\n")

    @property
    def model(self):
        folder = self.options.work / "model"
        if not folder.exists():
            checkpoint.write(self.config, folder, self.device, self.options.tokenizer)
        return folder


def machine_of(check):
    card = torch.cuda.get_device_name(check.device) if check.device.type == "cuda" else platform.processor() or platform.machine()
    driver = ""
    if check.device.type == "cuda":
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                                text=True).stdout.strip()
    return {"card": card, "driver": driver, "torch": torch.__version__, "cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}


def run_ceilings(check):
    figures = ceilings.measure(check.device, check.options.tiny)
    if check.device.type == "cuda":
        torch.cuda.empty_cache()
    print(f"   copy {figures['copy_bytes_per_second'] / 1e12:.2f} TB/s, product {figures['product_per_second'] / 1e12:.0f} Tflop/s, grouped "
          + ", ".join(f"{rows} rows {rate / 1e12:.0f}" for rows, rate in figures["grouped_per_second"].items()), flush=True)
    return figures


def run_tests(check):
    parts = [tests_of(check, program, chosen) for program, chosen in (("nn_test", "Aten*"), ("models_test", "*Engines*"))]
    count, failed = sum(part["tests"] for part in parts), [name for part in parts for name in failures_of(part)]
    print(f"   {count} tests, {len(failed)} failed: {' '.join(failed)}", flush=True)
    return {"tests": count, "failed_tests": failed}


def tests_of(check, program, chosen):
    """Returns GoogleTest's results of the selected tests, even if some failed."""
    result = check.options.work / f"{program}.json"
    try:
        check.program(program, f"--gtest_filter={chosen}", f"--gtest_output=json:{result}", limit=100,
                      EVENKEEL_TEST_DEVICE=check.options.device)
    except RuntimeError:
        if not result.exists():
            raise
    return json.loads(result.read_text())


def failures_of(told):
    return [f"{suite['name']}.{test['name']}" for suite in told["testsuites"] for test in suite["testsuite"] if test.get("failures")]


def adapter_hash(run):
    return hashlib.sha256((run / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()[:16]


def tiny_run(check, name, *more):
    out = check.options.work / name
    check.program("evenkeel", "train", ROOT / "configs/demo.toml", "--out", out, "--device", check.options.device, "--set",
                  "model.engine=aten", "model.compute_dtype=auto", "train.rounds=2", "data.limit=256", "evaluate.budgets=[1.0]",
                  "evaluate.limit=1", *more)
    return out


def run_bits(check):
    hashes = [adapter_hash(tiny_run(check, f"bits-{number}")) for number in range(2)]
    print(f"   adapters {hashes}", flush=True)
    return {"hashes": hashes, "equal": hashes[0] == hashes[1]}


def last_lines(text):
    return {line["shape"]: line for line in map(json.loads, text.splitlines())}


def run_steps(check):
    shapes = ["x".join(map(str, shape)) for shape in check.shapes]
    common = ["--steps", STEPS, "--rank", RANK]
    ours = last_lines(check.program("train_step", check.model, "--shapes", *shapes, *common, "--engine", "aten", "--device",
                                    check.options.device, limit=200))
    rows = {shape: {"ours": ours[shape]} for shape in shapes}
    try:
        theirs = last_lines(check.peer("steps", check.model, "--shapes", *shapes, *common))
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        theirs = {}
        print(f"   peer: {error}", flush=True)
    for shape, row in rows.items():
        if shape in theirs:
            row["peer"] = theirs[shape]
        compare(check, shape, row)
    return rows


def compare(check, shape, row):
    batch, length, top_k = map(int, shape.split("x"))
    ours = statistics.median(row["ours"]["seconds"][WARM_UP:])
    row |= {"ms": 1e3 * ours, "tokens_per_second": batch * length / ours}
    if "ceilings" in check.figures:
        row["roofline_ms"] = 1e3 * roofline.least_seconds(check.config, check.figures["ceilings"], batch * length, length, top_k, RANK)
    line = f"   {shape:10} {row['ms']:8.1f} ms, {row['ours']['peak_gib']:.1f} GiB, roofline {row.get('roofline_ms', 0):.1f} ms"
    if "peer" in row:
        theirs = statistics.median(row["peer"]["seconds"][WARM_UP:])
        row |= {"peer_ms": 1e3 * theirs, "times_faster": theirs / ours,
                "memory_ratio": row["ours"]["peak_gib"] / max(row["peer"]["peak_gib"], 1e-9),
                "loss_apart": max(abs(a - b) / abs(b) for a, b in zip(row["ours"]["losses"], row["peer"]["losses"]))}
        line += (f"; peer {row['peer_ms']:.1f} ms, {row['peer']['peak_gib']:.1f} GiB: {row['times_faster']:.2f} times as fast, memory "
                 f"x{row['memory_ratio']:.2f}, losses {row['loss_apart']:.1e} apart")
    print(line, flush=True)


def run_generate(check):
    prompts = check.options.work / "prompts.json"
    generator = torch.Generator().manual_seed(3)
    many, longest = (8, 16) if check.options.tiny else (128, 96)
    lengths = torch.randint(longest // 2, longest, (many,), generator=generator).tolist()
    prompts.write_text(json.dumps([torch.randint(5, check.config["vocab_size"], (n,), generator=generator).tolist() for n in lengths]))
    ours = json.loads(check.program("generate", check.model, "--prompts", prompts, "--read-prompts", "--device", check.options.device,
                                    "--engine", "aten", "--new", 32, "--top-k", check.config["num_experts_per_tok"]).splitlines()[-1])
    theirs = json.loads(check.peer("generate", check.model, "--prompts", prompts, "--new", 32, "--top-k",
                                   check.config["num_experts_per_tok"]).splitlines()[-1])
    print(f"   ours {ours['seconds']:.2f} s, peer {theirs['seconds']:.2f} s", flush=True)
    return {side: {key: run[key] for key in ("seconds", "peak_gib")} for side, run in (("ours", ours), ("peer", theirs))}


def run_evaluate(check):
    if not check.options.data:
        return {"skipped": "no --data"}
    begin = time.monotonic()
    told = check.program("evenkeel", "evaluate", "--model", check.model, "--tasks", "commonsense", "--data", check.options.data,
                         "--limit", 25, "--device", check.options.device, "--json", limit=150)
    return {"questions": 200, "seconds": time.monotonic() - begin, "told": told[-2000:]}


def round_arguments(check, name):
    rows = 64 if check.options.tiny else 8 * 16 * 47
    return ["train", ROOT / "bench/device_check/round.toml", "--out", check.options.work / name, "--device", check.options.device, "--set",
            f"model.path={check.model}", f"data.limit={rows}"]


def killed_run(check, arguments):
    """Kills the run after its first commit."""
    process = subprocess.Popen([str(check.options.programs / "evenkeel"), *map(str, arguments)], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    rounds = check.options.work / "killed/rounds.jsonl"
    limit = time.monotonic() + 150
    while process.poll() is None and time.monotonic() < limit and not (rounds.exists() and rounds.read_text().count("\n")):
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGKILL)
    process.wait()


def run_round(check):
    begin = time.monotonic()
    check.program("evenkeel", *round_arguments(check, "whole"), limit=200)
    seconds = time.monotonic() - begin
    rounds = [json.loads(line) for line in (check.options.work / "whole/rounds.jsonl").read_text().splitlines()]
    figures = {"seconds": seconds, "rounds": rounds, "hash": adapter_hash(check.options.work / "whole")}
    arguments = round_arguments(check, "killed")
    killed_run(check, arguments)
    check.program("evenkeel", *arguments, "--resume", limit=200)
    figures["resumed_hash"] = adapter_hash(check.options.work / "killed")
    figures["equal"] = figures["hash"] == figures["resumed_hash"]
    print(f"   two rounds {seconds:.1f} s; killed and resumed to the same bits: {figures['equal']}", flush=True)
    return figures


PARTS = {"ceilings": run_ceilings, "tests": run_tests, "bits": run_bits, "steps": run_steps, "generate": run_generate,
         "evaluate": run_evaluate, "round": run_round}


def run_part(check, name):
    print(f"== {name}, at {time.monotonic() - check.begin:.0f} s", flush=True)
    try:
        check.figures[name] = PARTS[name](check)
    except (RuntimeError, subprocess.TimeoutExpired, OSError, KeyError, ValueError) as error:
        check.figures[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(f"   FAILED {error}", flush=True)
    check.store()


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/dev/shm/evenkeel-check"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("device_check.json"))
    parser.add_argument("--data", type=pathlib.Path, help="folder that holds commonsense/, for `evaluate`")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=TOKENIZER, help="OLMoE's tokenizer.json, for real questions")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def main():
    check = Check(parse())
    check.figures["machine"] = machine_of(check)
    print(json.dumps(check.figures["machine"]), flush=True)
    for name in check.options.parts:
        run_part(check, name)
    failed = [name for name in check.options.parts if "failed" in check.figures[name] and check.figures[name]["failed"]]
    print(f"== {time.monotonic() - check.begin:.0f} s in all" + (f"; failed: {' '.join(failed)}" if failed else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
