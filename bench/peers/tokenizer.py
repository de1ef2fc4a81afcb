#!/usr/bin/env python3
"""Compares the speed of the tokenizer with the `tokenizers` library, on one thread and the same texts.

Both encode each text whole and line by line, and decode it. Loading is not counted. The two sides alternate. The output
has the best rates in MB per second of CPU time, the ratio of our rate to the library's (above 1 is faster), and the
growth of each process while it encoded the whole text. Ids are compared before the measurement. With --check, the exit
code is 1 if a ratio is below 1.

    .venv-v4/bin/python bench/peers/tokenizer.py --tokenizer tokenizer.json book.txt corpus.txt
"""
import os

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import argparse
import json
import pathlib
import subprocess
import sys
import time

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
CASES = {"encode_whole_text": "whole", "encode_lines": "lines", "decode_whole_text": "decode"}


def ours(build, tokenizer, text):
    """Returns MB/s by case from one run of tokenizer_bench, and the MiB that it took."""
    command = [str(build / "tokenizer_bench"), "--benchmark_format=json", "--benchmark_min_time=0.5",
               "--benchmark_filter=whole_text|encode_lines"]
    environment = dict(os.environ, EVENKEEL_TOKENIZER=str(tokenizer), EVENKEEL_TEXT=str(text), OMP_NUM_THREADS="1")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    runs = {run["name"]: run for run in json.loads(done.stdout)["benchmarks"]}
    rates = {case: runs[name]["bytes_per_second"] / 1e6 for name, case in CASES.items()}
    return rates, runs["encode_whole_text"]["MiB"]


def peak_mib():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def rate(text, work):
    best = float("inf")
    end = time.process_time() + 0.5
    while best == float("inf") or time.process_time() < end:
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return len(text.encode()) / best / 1e6


def theirs(tokenizer, text):
    lines = text.split("\n")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    before = peak_mib()
    ids = tokenizer.encode(text).ids
    memory = peak_mib() - before
    return {"whole": rate(text, lambda: tokenizer.encode(text)),
            "lines": rate(text, lambda: [tokenizer.encode(line) for line in lines]),
            "decode": rate(text, lambda: tokenizer.decode(ids, skip_special_tokens=False))}, memory


def same_ids(build, file, tokenizer, text):
    command = [str(build / "evenkeel"), "tokenize", "--model", str(file), "--jsonl", "--input", "-"]
    done = subprocess.run(command, input=json.dumps(text), capture_output=True, text=True, check=True)
    return json.loads(done.stdout) == tokenizer.encode(text).ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=pathlib.Path)
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path, help="a tokenizer.json")
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--repeats", default=3, type=int)
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is below 1")
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(arguments.tokenizer))
    slower = False
    print(f"{'text':24} {'case':8} {'ours MB/s':>10} {'theirs MB/s':>12} {'ratio':>7} {'ours MiB':>9} {'theirs MiB':>11}")
    for file in arguments.texts:
        text = file.read_bytes().decode()
        if not same_ids(arguments.build, arguments.tokenizer, tokenizer, text):
            sys.exit(f"{file}: the ids differ")
        mine, reference = [], []
        for _ in range(arguments.repeats):
            mine.append(ours(arguments.build, arguments.tokenizer, file))
            reference.append(theirs(tokenizer, text))
        memories = max(m for _, m in mine), max(m for _, m in reference)
        for case in CASES.values():
            a, b = (max(rates[case] for rates, _ in runs) for runs in (mine, reference))
            slower |= a < b
            note = f" {memories[0]:9.0f} {memories[1]:11.0f}" if case == "whole" else ""
            print(f"{file.name:24} {case:8} {a:10.1f} {b:12.1f} {a / b:7.1f}{note}")
    return 1 if arguments.check and slower else 0


if __name__ == "__main__":
    sys.exit(main())
