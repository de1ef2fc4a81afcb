#!/usr/bin/env python3
"""Checks correctness and speed of the program on a machine with a GPU, in at most nine minutes and a half.

    python3 bench/device_check/device_check.py --device cuda --programs build --work /dev/shm/check --out check.json

Requires a Python with torch, transformers and PEFT (the peer), and the programs evenkeel, launch_costs, kernel_rates,
train_step, generate, nn_test, models_test and scoring_test built against the same LibTorch. The parts are, in this order; those up
to `workers` take about five minutes and say what bounds a step:

    launch     what starting work costs: an empty kernel, an operator, a product, a grouped product, a node of a graph
    profile    training steps by operator: launches, time on the host and on the device
    methods    steps of FedIT, UB-SMoE, SMoE-LLB and HetLoRA
    replay     steps with recorded passes and operator by operator: time, and the same adapter
    workers    1, 2 and 4 processes on one GPU: seconds, and the same adapter
    ceilings   the limits of the GPU: copy, product, grouped products of 4, 64 and 512 rows
    generate   greedy answers to prompts: time and memory by batch and experts per token, and the peer's generate()
    kernels    each CUDA kernel of the program beside the operators that it replaces: error, time, bytes per second
    cublas     dense products with and without the program's setting of cuBLAS's workspace
    steps      a random OLMoE-1B-7B at several experts per token and batch sizes: time and memory
    peer       the same with transformers + PEFT, on the same ids and weights
    tests      unit tests of the engine on the GPU against float64 on the CPU
    bits       two processes train the built-in model to the same adapter, one that is killed and resumed too
    round      eight clients train UB-SMoE on it for a round of 47 steps each: seconds by part
    evaluate   test sets (--data, or the built-in ones) at four budgets: seconds and memory
    table2     the hours of the paper's Table 2, from what was measured

Each part has a budget of seconds, after which it is ended. A part that cannot be done in what is left of --seconds is
left out. If one fails, it is reported and the others continue. The results are stored as JSON after each part and each
line that a program prints, so that an interrupted run leaves what was done. `--tiny` is a trial on a CPU with a small
model and two shapes; with `--simulate build/tests/libsimulated_gpu.so` its programs run on a GPU that the processor
plays. What needs a real GPU says so under "skipped".

The command above is for programs that were built here. For a machine without a compiler, bench/device_check/pack puts
them and their libraries into one archive. The second line runs everything there:

    bench/device_check/pack build-gpu root.tar.xz data/commonsense data/olmo.json
    tar -xJf root.tar.xz && python3 root/bench/device_check/device_check.py
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import threading
import time

import torch

import checkpoint
import parts

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TINY = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4,
        "vocab_size": 1024, "num_experts": 8, "num_experts_per_tok": 8, "eos_token_id": 0}
TOKENIZER = ROOT / "assets/tiny-olmoe/tokenizer.json"
PACKED = ROOT / "bin"  # of an archive of bench/device_check/pack


GRACE = 5  # seconds for a part to end after its last program was ended


class TooLate(RuntimeError):
    """A program was ended at its time limit."""


class Check:
    """The options, the results so far, and how to call programs."""

    def __init__(self, options):
        self.options, self.figures = options, {}
        self.environment = os.environ | libraries_of(options.programs)
        self.device = torch.device(options.device)
        self.programs_device = "cuda" if options.simulate else options.device
        self.config = json.loads((ROOT / "configs/full-size/model.json").read_text()) | (TINY if options.tiny else {})
        self.begin = time.monotonic()
        self.part_end = self.begin + options.seconds

    @property
    def tiny(self):
        return self.options.tiny

    def left(self):
        """Returns the seconds that are left for all parts."""
        return self.options.seconds - (time.monotonic() - self.begin)

    def left_of_part(self):
        return min(self.left(), self.part_end - time.monotonic())

    def program(self, name, *arguments, limit=120, on_line=None, **environment):
        command = [str(self.options.programs / name), *map(str, arguments)]
        return self.call(command, limit, self.simulated() | environment, on_line)

    def simulated(self):
        """Returns the variables of programs on the simulated GPU, with room for four workers; none without it."""
        if not self.options.simulate:
            return {}
        return {"LD_PRELOAD": str(self.options.simulate), "OMP_NUM_THREADS": "1", "EVENKEEL_SIMULATED_GPU_MIB": "8192"}

    def python(self, script, *arguments, limit=200, on_line=None):
        """Runs a script of this folder."""
        return self.call([sys.executable, str(HERE / script), *map(str, arguments), "--device", self.options.device], limit, {}, on_line)

    def peer(self, *arguments, limit=200, on_line=None):
        return self.python("peer.py", *arguments, limit=limit, on_line=on_line)

    def call(self, command, limit, environment, on_line=None):
        """Returns the command's stdout, after on_line() was called with each line of it. Its stderr goes to a file."""
        begin = time.monotonic()
        with (self.options.work / "errors.txt").open("a") as errors:
            print("$", " ".join(command), file=errors, flush=True)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True,
                                       env=self.environment | {name: str(value) for name, value in environment.items()})
            lines, late = self.lines_of(process, min(limit, max(self.left_of_part(), 1)), on_line)
        print(f"   {time.monotonic() - begin:6.1f} s  {' '.join(command)[:150]}", flush=True)
        if late:
            raise TooLate(f"{command[0]} was ended after {time.monotonic() - begin:.0f} s")
        if process.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {self.last_error()}")
        return "".join(lines)

    @staticmethod
    def lines_of(process, limit, on_line):
        """Reads a process to its end. Returns its lines, and whether it was killed at its time limit."""
        late, lines = threading.Event(), []
        timer = threading.Timer(limit, lambda: (late.set(), process.kill()))
        timer.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if on_line:
                    on_line(line)
            process.wait()
        finally:
            timer.cancel()
            if process.poll() is None:
                process.kill()
                process.wait()
        return lines, late.is_set()

    def last_error(self):
        """Returns the end of what the last program wrote to its stderr."""
        lines = (self.options.work / "errors.txt").read_text().splitlines()
        begin = max(number for number, line in enumerate(lines) if line.startswith("$ "))
        return " | ".join(lines[begin + 1:][-4:])[-600:]

    def store(self):
        part = self.options.out.with_suffix(".part")
        part.write_text(json.dumps(self.figures, indent=1) + "\n")
        part.replace(self.options.out)

    def new_folder(self, name):
        """Returns the path of a folder of --work, which an earlier check may have left there: it is removed."""
        folder = self.options.work / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    @property
    def model(self):
        folder = self.options.work / "model"
        if not folder.exists():
            checkpoint.write(self.config, self.new_folder("model.part"), self.device, self.options.tokenizer).rename(folder)
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
        return folder


def libraries_of(programs):
    """Returns variables that let packed programs find their own libraries and those of this Python's torch."""
    packed = programs.parent / "lib"
    return {"LD_LIBRARY_PATH": f"{pathlib.Path(torch.__file__).parent}/lib:{packed}"} if packed.is_dir() else {}


def minor(version):
    return version.split("+")[0].split(".")[:2]


def check_torch():
    """Checks that packed programs were built with this Python's torch, whose minor versions are not compatible."""
    built_with = ROOT / "torch-version"
    if built_with.is_file() and minor(built_with.read_text()) != minor(torch.__version__):
        sys.exit(f"device_check: the programs were built with torch {built_with.read_text().strip()}, this Python has {torch.__version__}")


def processor():
    """Returns the name and the clock of the processor, whose speed decides what a launch costs."""
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    found = {name: line.split(":", 1)[1].strip() for line in lines for name in ("model name", "cpu MHz") if line.startswith(name)}
    return {"processor": found.get("model name", ""), "mhz": found.get("cpu MHz", "")}


def machine_of(check):
    card = torch.cuda.get_device_name(check.device) if check.device.type == "cuda" else platform.processor() or platform.machine()
    driver = ""
    if check.device.type == "cuda":
        driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                                text=True).stdout.strip()
    return {"card": card, "driver": driver, "torch": torch.__version__, "cores": os.cpu_count(), **processor(),
            "simulated": bool(check.options.simulate), "date": time.strftime("%Y-%m-%d")}


@contextlib.contextmanager
def ended_after(seconds):
    """Ends what runs in this process after some seconds. Programs have time limits of their own, which are shorter."""
    def end(*_):
        raise TooLate(f"the part was ended after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run_part(check, name):
    """Runs a part and stores its figures, also those of a part that ends early."""
    run, least, most = parts.PARTS[name]
    begin = time.monotonic()
    check.part_end = begin + (math.inf if check.tiny else most)  # a trial's processor may be slow
    print(f"== {name}, at {begin - check.begin:.0f} s", flush=True)
    figures = check.figures[name] = {}
    if check.left() < least and not check.tiny:
        figures["left_out"] = f"{check.left():.0f} s are left, it takes about {least} s"
        print(f"   left out: {figures['left_out']}", flush=True)
        return
    check.store()
    try:
        with ended_after(check.left_of_part() + GRACE):
            run(check, figures)
    except Exception as error:  # whatever a part's fault is, the others go on
        figures["failed"] = f"{type(error).__name__}: {error}"
        print(f"   FAILED {error}", flush=True)
    figures["part_seconds"] = time.monotonic() - begin
    check.store()


def parse(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--programs", type=pathlib.Path, default=PACKED if PACKED.is_dir() else ROOT / "build", help="their folder")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/dev/shm/evenkeel-check"), help="needs 26 GB")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("device_check.json"))
    sets = ROOT / "data/commonsense"
    parser.add_argument("--data", type=pathlib.Path, default=sets if sets.is_dir() else None, help="folder of the commonsense sets")
    parser.add_argument("--tokenizer", type=pathlib.Path, default=next((ROOT / "data").glob("*.json"), TOKENIZER),
                        help="OLMoE's tokenizer.json, for --data")
    parser.add_argument("--parts", nargs="+", choices=parts.PARTS, default=list(parts.PARTS))
    parser.add_argument("--seconds", type=float, default=570, help="of all parts together (default: 570)")
    parser.add_argument("--tiny", action="store_true", help="a trial with a small model")
    parser.add_argument("--simulate", type=pathlib.Path, help="library of the simulated GPU, for a trial with --device cpu")
    options = parser.parse_args(words)
    options.work.mkdir(parents=True, exist_ok=True)
    return options


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    check_torch()
    check = Check(parse())
    signal.signal(signal.SIGTERM, interrupt)
    check.figures["machine"] = machine_of(check)
    print(json.dumps(check.figures["machine"]), flush=True)
    try:
        for name in check.options.parts:
            run_part(check, name)
    except KeyboardInterrupt:
        print(f"== interrupted; {check.options.out} has what was done", flush=True)
        return 130
    finally:
        check.figures["seconds"] = time.monotonic() - check.begin
        check.store()
    failed = [name for name in check.options.parts if "failed" in check.figures[name]]
    print(f"== {check.figures['seconds']:.0f} s in all" + (f"; failed: {' '.join(failed)}" if failed else ""), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
