#!/usr/bin/env python3
"""Checks how large files and functions are: no file above 600 lines, the 95th percentile of functions at most 45 lines,
no line of C++ above 120 columns, of JavaScript above 140 (clang-format leaves comments as they are).

Function lengths are first to last line, from Universal Ctags; without it only files are checked. Tests and
benchmarks keep the cap on files alone. Prints the worst five. Exit 1 when a limit is passed.
"""
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_CAP, FUNCTION_P95 = 600, 45
WIDTHS = {".h": 120, ".cpp": 120, ".inc": 120, ".js": 140}
FOLDERS = ("src", "apps", "tests", "bench", "tools", "flower")
SUFFIXES = (".h", ".cpp", ".inc", ".js", ".py")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def functions(files):
    """Returns [(lines, "file:line name")] of every C++ function that has a body."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C++=f", "--language-force=C++", "-f", "-", "-L", "-"]
    listing = "\n".join(str(f) for f in files)
    output = subprocess.run(command, input=listing, capture_output=True, text=True, check=True).stdout
    for line in output.splitlines():
        tag = json.loads(line)
        if "end" in tag:
            where = pathlib.Path(tag["path"]).relative_to(ROOT)
            yield tag["end"] - tag["line"] + 1, f"{where}:{tag['line']} {tag['name']}"


def worst(title, sized):
    print(title + "; worst five: " + ", ".join(f"{name} ({lines})" for lines, name in sorted(sized, reverse=True)[:5]))


def main():
    files = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES]
    lengths = [(len(p.read_text(encoding="utf-8").splitlines()), str(p.relative_to(ROOT))) for p in files]
    counts = [lines for lines, _ in lengths]
    worst(f"files: {len(files)}, median {statistics.median(counts):.0f}, p95 {percentile(counts, 0.95)}, "
          f"max {max(counts)} (cap {FILE_CAP})", lengths)
    bad = [name for lines, name in lengths if lines > FILE_CAP]

    for p in files:
        if p.suffix in WIDTHS:
            bad += [f"{p.relative_to(ROOT)}:{number} ({len(line)} columns)"
                    for number, line in enumerate(p.read_text(encoding="utf-8").splitlines(), 1) if len(line) > WIDTHS[p.suffix]]

    code = [p for p in files if p.suffix in (".h", ".cpp", ".inc") and not p.name.endswith(("_test.cpp", "_bench.cpp"))
            and p.relative_to(ROOT).parts[0] in ("src", "apps")]
    if code and shutil.which("ctags"):
        spans = list(functions(code))
        p95 = percentile([lines for lines, _ in spans], 0.95)
        worst(f"functions: {len(spans)}, median {statistics.median(n for n, _ in spans):.0f}, p95 {p95} "
              f"(limit {FUNCTION_P95})", spans)
        if p95 > FUNCTION_P95:
            bad.append("functions")
    else:
        print("functions: not measured, ctags is missing")
    if bad:
        print("sizes: too large: " + ", ".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
