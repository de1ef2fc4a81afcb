#!/usr/bin/env python3
"""Counts the work of the studies in configs/paper, which `evenkeel list tables` turns into time: configs/paper/work.toml.

The numbers are those of `evenkeel study FILE --dry-run`, on the published rows below $EVENKEEL_DATA and on models of the
published shapes without weights. It takes some minutes.

    EVENKEEL_DATA=... python3 tools/paper_work.py            compares the file with a new count
    EVENKEEL_DATA=... python3 tools/paper_work.py --write    writes it
    ... tools/paper_work.py rho small/rho                    counts these alone
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAPER = ROOT / "configs/paper"
FILE = PAPER / "work.toml"
PROGRAM = os.environ.get("EVENKEEL_PROGRAM", str(ROOT / "build/evenkeel"))
TOKENIZER = "tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json"
UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
HEADER = """# The work of every study: FLOPs of all its runs, training and scoring (docs/methods.md has the convention).
# Written by tools/paper_work.py, from `evenkeel study FILE --dry-run` with the published rows and shapes.
"""
TOLERANCE = 0.01  # the dry run prints four digits

sys.path.insert(0, str(ROOT / "tests/e2e"))
from published_models import OLMO_1B, OLMOE_1B_7B, write_model  # noqa: E402


def names():
    """Returns the studies at full size, then the small ones."""
    full = sorted(file.stem for file in PAPER.glob("*.toml") if "[study]" in file.read_text())
    return full + [f"small/{name}" for name in full]


def make_models(folder, data):
    """Writes the models that the studies name, as sparse files. Returns the folder of each by its name."""
    shapes = {"OLMoE-1B-7B-0924": OLMOE_1B_7B, "OLMo-1B-hf": OLMO_1B,
              "small-olmoe": json.loads((ROOT / "configs/pretrain/small-olmoe.json").read_text())}
    return {name: write_model(folder / name, shape, data / TOKENIZER) for name, shape in shapes.items()}


def flops_in(text):
    """Returns the FLOPs of a dry run's output."""
    number, unit = re.search(r"^work +([\d.]+) ?([kMGTPE]?)FLOP ", text, re.M).groups()
    return float(number) * UNITS[unit]


def count(name, models, folder):
    """Returns the FLOPs of a study."""
    file = PAPER / f"{name}.toml"
    base = tomllib.loads((file.parent / tomllib.loads(file.read_text())["study"]["base"]).read_text())
    model = pathlib.Path(base["model"]["path"]).name
    words = ["--set", f"model.path={models[model]}"] if model in models else []
    done = subprocess.run([PROGRAM, "study", file, "--dry-run", "--out", folder / "out", *words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    return flops_in(done.stdout)


def recorded():
    return {one["name"]: one["flops"] for one in tomllib.loads(FILE.read_text())["work"]} if FILE.exists() else {}


def text_of(work):
    return HEADER + "".join(f'\n[[work]]\nname = "{name}"\nflops = {work[name]:.4g}\n' for name in names() if name in work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=names())
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    data = pathlib.Path(os.environ["EVENKEEL_DATA"])
    work = recorded()
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        models = make_models(folder, data)
        for name in chosen.names:
            counted = count(name, models, folder)
            print(f"{name}: {counted:.4g}", file=sys.stderr, flush=True)
            if abs(counted - work.get(name, 0)) > TOLERANCE * counted:
                wrong.append(name)
            work[name] = counted
    if chosen.write:
        FILE.write_text(text_of(work))
    elif wrong:
        sys.exit(f"{FILE}: other work was counted for {', '.join(wrong)}; --write writes it")


if __name__ == "__main__":
    main()
