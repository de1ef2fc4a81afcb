"""The parts of a device check. Each takes the check and the dictionary that its figures go into, which is stored when a
part ends early too.
"""
import json
import math
import pathlib
import signal
import statistics
import subprocess
import time

import torch

import ceilings
import first_parts
import roofline
import table2
from figures import adapter_hash, require

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP, STEPS, RANK = 2, 8, 20
MOST_APART = 0.01  # of losses beside the peer's, relative; 1.5e-4 were measured on an H200
TOP_KS = (1, 2, 4, 8)
BENCH_SHAPES = ["8x256x1", "8x256x8", "8x512x8"]  # these first, because the time may end before the others
SHAPES = BENCH_SHAPES + [shape for batch, length in ((1, 256), (8, 256), (8, 512)) for k in TOP_KS
                         if (shape := f"{batch}x{length}x{k}") not in BENCH_SHAPES]
LARGE_SHAPES = [f"{batch}x512x{k}" for batch in (16, 32) for k in TOP_KS]  # for the table of memory, without the peer
TINY_SHAPES = ["2x32x1", "2x32x8"]
PROMPTS = ["128x1", "128x8", "512x8"]
TESTED_FAMILIES = ("olmoe", "qwen3_moe", "deepseek_v3", "llama", "gemma2")  # all of them take longer than there is time
EVALUATED = [*(f"128x{k}" for k in TOP_KS), "32x8", "512x8"]
BUILTIN_TASKS = ("builtin:facts", "builtin:tools")
BIT_ROUNDS = 3  # of the runs whose bits are compared; one is killed after the first


def numbers(shape):
    return tuple(map(int, shape.split("x")))


def shapes_of(check):
    return TINY_SHAPES if check.tiny else SHAPES


# Limits, tests -----------------------------------------------------------------------------------------------------------------------

def run_ceilings(check, figures):
    figures |= ceilings.measure(check.device, check.tiny)
    if check.device.type == "cuda":
        torch.cuda.empty_cache()
    print(f"   copy {figures['copy_bytes_per_second'] / 1e12:.2f} TB/s, product {figures['product_per_second'] / 1e12:.0f} Tflop/s, grouped "
          + ", ".join(f"{rows} rows {rate / 1e12:.0f}" for rows, rate in figures["grouped_per_second"].items()), flush=True)


def run_tests(check, figures):
    families = ":".join(f"*Engines*/{family}" for family in TESTED_FAMILIES)
    chosen = {"nn_test": "Aten*:*TestDevice*", "scoring_test": "*TestDevice*", "models_test": f"{families}:*TestDevice*"}
    figures |= {"tests": 0, "failed_tests": []}
    for program, names in chosen.items():
        told = tests_of(check, program, names)
        figures["tests"] += told["tests"]
        figures["failed_tests"] += failures_of(told)
        check.store()
    print(f"   {figures['tests']} tests, {len(figures['failed_tests'])} failed: {' '.join(figures['failed_tests'])}", flush=True)
    require(not figures["failed_tests"], f"{len(figures['failed_tests'])} of {figures['tests']} tests failed")


def tests_of(check, program, chosen):
    """Returns GoogleTest's results of the selected tests, even if some failed. Each program must run one or more."""
    result = check.options.work / f"{program}.json"
    result.unlink(missing_ok=True)
    try:
        check.program(program, f"--gtest_filter={chosen}", f"--gtest_output=json:{result}", limit=100,
                      EVENKEEL_TEST_DEVICE=check.programs_device)
    except RuntimeError:
        if not result.exists():
            raise
    told = json.loads(result.read_text())
    done = [test for suite in told["testsuites"] for test in suite["testsuite"] if test.get("result") == "COMPLETED"]
    require(done, f"{program} ran none of the tests {chosen}: {told['tests']} were selected")
    return told


def failures_of(told):
    return [f"{suite['name']}.{test['name']}" for suite in told["testsuites"] for test in suite["testsuite"] if test.get("failures")]


# Training steps ----------------------------------------------------------------------------------------------------------------------

def step_arguments(check, shapes, steps=STEPS):
    return [check.model, "--shapes", *shapes, "--steps", steps, "--rank", RANK]


def run_profile(check, figures):
    def take(line):
        told = json.loads(line)
        profile = figures[told["shape"]] = told["profile"] | {"ms": 1e3 * statistics.median(told["seconds"][WARM_UP:])}
        check.store()
        show_profile(told["shape"], profile)

    shapes = TINY_SHAPES if check.tiny else BENCH_SHAPES
    check.program("train_step", *step_arguments(check, shapes, 5), "--profile", 3, "--engine", "aten", "--device", check.programs_device,
                  limit=90, on_line=take)


def show_profile(shape, profile):
    steps = profile["steps"]
    print(f"   {shape}: {profile['ms']:.1f} ms a step; profiled {profile['wall_ms'] / steps:.1f} ms, {profile['launches'] / steps:,.0f} launches, "
          f"host {profile['host_ms'] / steps:.1f} ms, device {profile['device_ms'] / steps:.1f} ms", flush=True)
    for kind in ("operators", "runtime", "kernels"):
        for row in profile[kind][:8]:
            print(f"      {row['calls'] / steps:8.0f} calls {row['launches'] / steps:7.0f} launches {row['host_ms'] / steps:8.2f} host ms "
                  f"{row['device_ms'] / steps:8.2f} device ms  {row['name'][:80]}", flush=True)


def run_steps(check, figures):
    def take(line):
        told = json.loads(line)
        shape = told["shape"]
        batch, length, top_k = numbers(shape)
        seconds = statistics.median(told["seconds"][WARM_UP:])
        row = figures[shape] = {"ours": told, "ms": 1e3 * seconds, "tokens_per_second": batch * length / seconds}
        if "product_per_second" in check.figures.get("ceilings", {}):
            row["roofline_ms"] = 1e3 * roofline.least_seconds(check.config, check.figures["ceilings"], batch * length, length, top_k, RANK)
        check.store()
        print(f"   {shape:10} {row['ms']:8.1f} ms, {told['peak_gib']:.1f} GiB, roofline {row.get('roofline_ms', 0):.1f} ms", flush=True)

    shapes = TINY_SHAPES if check.tiny else SHAPES + LARGE_SHAPES
    check.program("train_step", *step_arguments(check, shapes), "--engine", "aten", "--device", check.programs_device, limit=120, on_line=take)


def run_peer(check, figures):
    """Adds the peer's figures to those of `steps`, which has a row for each shape."""
    rows = check.figures.get("steps", {})

    def take(line):
        told = json.loads(line)
        row = rows.get(told["shape"], {})
        row["peer"] = told
        compare(told["shape"], row)
        figures["shapes"] = figures.get("shapes", 0) + 1
        check.store()

    check.peer("steps", *step_arguments(check, shapes_of(check)), limit=150, on_line=take)
    distances = {shape: row["loss_apart"] for shape, row in rows.items() if isinstance(row, dict) and row.get("loss_apart", 0) > MOST_APART}
    require(not distances, f"losses are apart, allowed {MOST_APART}: {distances}")


def apart(ours, peers):
    """Returns the relative distance of two losses; infinite if one is not finite."""
    return abs(ours - peers) / abs(peers) if math.isfinite(ours) and math.isfinite(peers) and peers else math.inf


def compare(shape, row):
    seconds = statistics.median(row["peer"]["seconds"][WARM_UP:])
    line = f"   {shape:10} peer {1e3 * seconds:.1f} ms, {row['peer']['peak_gib']:.1f} GiB"
    if "ours" in row:
        row |= {"peer_ms": 1e3 * seconds, "times_faster": 1e3 * seconds / row["ms"],
                "memory_ratio": row["ours"]["peak_gib"] / max(row["peer"]["peak_gib"], 1e-9),
                "loss_apart": max(map(apart, row["ours"]["losses"], row["peer"]["losses"]))}
        line += f": ours {row['times_faster']:.2f} times as fast, memory x{row['memory_ratio']:.2f}, losses {row['loss_apart']:.1e} apart"
    print(line, flush=True)


# A federated round -------------------------------------------------------------------------------------------------------------------

def round_arguments(check):
    rows = 8 * 16 * (2 if check.tiny else 47)
    arguments = ["train", ROOT / "bench/device_check/round.toml", "--out", check.new_folder("round"), "--device", check.programs_device,
                 "--progress", "json", "--set", f"model.path={check.model}", f"data.limit={rows}"]
    if check.options.data:
        arguments += ["data.task=commonsense", f"data.path={check.options.data}"]
    return arguments


def run_round(check, figures):
    begin, events = time.monotonic(), []

    def take(line):
        event = json.loads(line)["event"]
        if event != "progress" or not any(name == event for name, _ in events):
            events.append((event, time.monotonic() - begin))

    check.program("evenkeel", *round_arguments(check), limit=200, on_line=take)
    (record,) = [json.loads(line) for line in (check.options.work / "round/rounds.jsonl").read_text().splitlines()]
    figures |= {"seconds": time.monotonic() - begin, "events": events, "record": record["seconds"], "loss": record["loss"],
                "tokens": record["tokens"], "steps": record["steps"], "client_seconds": [client["seconds"] for client in record["clients"]],
                "client_tokens": [client["tokens"] for client in record["clients"]], "bytes_up": record["bytes_up"],
                "hash": adapter_hash(check.options.work / "round")}
    figures["parts"] = table2.parts_of_round(record["seconds"], events)
    for name, value in figures["parts"].items():
        print(f"   {name:15} {value:8.2f}" + ("" if name.startswith("share") else " s"), flush=True)


# Evaluation and generation -----------------------------------------------------------------------------------------------------------

def run_evaluate(check, figures):
    tasks = list(table2.ROWS) if check.options.data else BUILTIN_TASKS
    figures |= {"tasks": list(tasks), "runs": {}}

    def take(line):
        told = json.loads(line)
        figures["runs"][told["shape"]] = told
        check.store()
        print(f"   {told['shape']:8} {told['rows']} questions in {told['seconds']:.1f} s, {told['peak_gib']:.1f} GiB", flush=True)

    data = ["--data", check.options.data] if check.options.data else []
    tokenizer = check.options.tokenizer
    check.program("generate", check.model, "--tasks", *tasks, *data, "--tokenizer", tokenizer, "--rows", 4 if check.tiny else 64, "--runs",
                  *([f"4x{k}" for k in TOP_KS] if check.tiny else EVALUATED), "--new", 32, "--engine", "aten", "--device", check.programs_device,
                  limit=120, on_line=take)


def written_prompts(check, many):
    """Writes random prompts of 48 to 96 tokens (of 8 to 16 in a trial)."""
    generator = torch.Generator().manual_seed(3)
    longest = 16 if check.tiny else 96
    lengths = torch.randint(longest // 2, longest, (many,), generator=generator).tolist()
    prompts = check.options.work / f"prompts-{many}.json"
    prompts.write_text(json.dumps([torch.randint(5, check.config["vocab_size"], (n,), generator=generator).tolist() for n in lengths]))
    return prompts


def run_generate(check, figures):
    runs, many = (["4x1", "8x8"], 8) if check.tiny else (PROMPTS, 512)
    figures["runs"] = {}

    def take(line):
        told = json.loads(line)
        figures["runs"][told["shape"]] = {key: told[key] for key in ("seconds", "peak_gib")}
        check.store()
        print(f"   {told['shape']:8} prompts x experts: {told['seconds']:.2f} s, {told['peak_gib']:.1f} GiB", flush=True)

    check.program("generate", check.model, "--prompts", written_prompts(check, many), "--read-prompts", "--runs", *runs, "--new", 32,
                  "--engine", "aten", "--device", check.programs_device, limit=90, on_line=take)
    prompts = written_prompts(check, many if check.tiny else 128)
    told = json.loads(check.peer("generate", check.model, "--prompts", prompts, "--new", 32, "--top-k",
                                 check.config["num_experts_per_tok"], limit=90).splitlines()[-1])
    figures["peer"] = {key: told[key] for key in ("seconds", "peak_gib")}
    print(f"   peer {told['seconds']:.2f} s, {told['peak_gib']:.1f} GiB", flush=True)


# Bits --------------------------------------------------------------------------------------------------------------------------------

def demo_arguments(check, out):
    return ["train", ROOT / "configs/demo.toml", "--out", out, "--device", check.programs_device, "--set", "model.engine=aten",
            "model.compute_dtype=auto", f"train.rounds={BIT_ROUNDS}", "data.limit=256", "evaluate.budgets=[1.0]", "evaluate.limit=1"]


def rounds_in(run):
    return (run / "rounds.jsonl").read_text().count("\n") if (run / "rounds.jsonl").exists() else 0


def killed_run(check, out):
    """Kills a run after its first commit. Returns true if it was killed with rounds left."""
    command = [str(check.options.programs / "evenkeel"), *map(str, demo_arguments(check, out))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=check.environment | check.simulated()) as process:
        limit = time.monotonic() + min(60, max(1, check.left()))
        while process.poll() is None and time.monotonic() < limit and not rounds_in(out):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    return process.returncode == -signal.SIGKILL and 0 < rounds_in(out) < BIT_ROUNDS


def run_bits(check, figures):
    figures["hashes"] = []
    for number in range(2):
        out = check.new_folder(f"bits-{number}")
        check.program("evenkeel", *demo_arguments(check, out), limit=60)
        figures["hashes"].append(adapter_hash(out))
    killed = check.new_folder("killed")
    figures["killed"] = killed_run(check, killed)
    require(figures["killed"], f"no run was killed between two of its {BIT_ROUNDS} rounds: it had {rounds_in(killed)}")
    check.program("evenkeel", *demo_arguments(check, killed), "--resume", limit=60)
    figures["resumed_hash"] = adapter_hash(killed)
    figures["equal"] = len({*figures["hashes"], figures["resumed_hash"]}) == 1
    print(f"   adapters {figures['hashes']}, killed and resumed {figures['resumed_hash']}: the same is {figures['equal']}", flush=True)
    require(figures["equal"], "the adapters differ")


# The paper's Table 2 -----------------------------------------------------------------------------------------------------------------

def run_table2(check, figures):
    of_round, evaluate = check.figures.get("round", {}), check.figures.get("evaluate", {})
    missing = [name for name, part, key in (("round", of_round, "parts"), ("evaluate", evaluate, "runs")) if not part.get(key)]
    if missing:
        figures["left_out"] = f"not measured: {', '.join(missing)}"
        print(f"   left out: {figures['left_out']}", flush=True)
        return
    figures |= table2.hours(of_round, evaluate)
    print("   " + table2.sentence(figures), flush=True)


# Each part with the seconds that it takes at least and at most. The parts of the first five minutes decide what to build
# next. The checkpoint is written in the first part that needs it.
PARTS = {"launch": (first_parts.run_launch, 10, 30), "profile": (run_profile, 30, 75), "methods": (first_parts.run_methods, 40, 90),
         "replay": (first_parts.run_replay, 25, 45), "workers": (first_parts.run_workers, 40, 90),
         "kernels": (first_parts.run_kernels, 10, 30), "ceilings": (run_ceilings, 5, 15),
         "generate": (run_generate, 25, 60), "cublas": (first_parts.run_cublas, 10, 30), "steps": (run_steps, 25, 60), "peer": (run_peer, 40, 90),
         "tests": (run_tests, 20, 75), "bits": (run_bits, 25, 60), "round": (run_round, 60, 120), "evaluate": (run_evaluate, 30, 90),
         "table2": (run_table2, 0, 5)}
