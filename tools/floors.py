#!/usr/bin/env python3
"""Checks that includes point down only: a room may include itself and the rooms on lower floors, never a sibling.

Also checks what keeps builds quick and headers of other versions apart: no <torch/torch.h>; of LibTorch a header sees
<ATen/core/Tensor.h>, what that brings in itself (c10/), and the thread pool; spdlog and fmt live in base/log.cpp.
A testing.h may include more; tests and other such headers alone include it. Exit 1 and one line per offence.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = {"base": 0, "lora": 1, "tokenizer": 1, "wire": 1, "data": 2, "nn": 3, "models": 4, "methods": 4, "scoring": 5, "train": 5,
          "fed": 6, "cluster": 7, "flower": 7, "report": 7, "apps": 8}
LIGHT = ("ATen/core/Tensor.h", "ATen/Parallel.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else parts[0]


def offences_of_include(path, room, bracket, target):
    if target == "torch/torch.h":
        yield "includes <torch/torch.h>: 18 s per unit, include what you use"
    if bracket == "<":
        if path.suffix == ".h" and path.name != "testing.h" and target.startswith(("ATen/", "torch/")) and target not in LIGHT:
            yield f"a header includes <{target}>, allowed: {', '.join(f'<{light}>' for light in LIGHT)}"
        if target.startswith(("spdlog/", "fmt/")) and path.relative_to(ROOT).as_posix() != "src/base/log.cpp":
            yield f"includes <{target}>, allowed in src/base/log.cpp alone"
        return
    if target.endswith("/testing.h") and not path.name.endswith(("_test.cpp", "testing.h")):
        yield f'includes "{target}", which is for tests alone'
    other = target.split("/")[0]
    if other not in FLOORS:
        yield f'includes "{target}", expected "room/file.h" with a room of {", ".join(FLOORS)}'
    elif other != room and FLOORS[other] >= FLOORS[room]:
        yield f'room {room} (floor {FLOORS[room]}) includes "{target}" (floor {FLOORS[other]})'
    elif not (ROOT / "src" / target).exists() and not (ROOT / target).exists():
        yield f'includes "{target}", which does not exist'


def offences(path):
    room = room_of(path)
    if room not in FLOORS:
        yield 0, f"{room} is no room, known: {', '.join(FLOORS)}"
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            for offence in offences_of_include(path, room, *match.groups()):
                yield number, offence


def main():
    files = sorted(p for folder in ("src", "apps") for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp"))
    found = [(p, n, text) for p in files for n, text in offences(p)]
    for path, number, text in found:
        print(f"{path.relative_to(ROOT)}:{number}: {text}")
    print(f"floors: {len(files)} files, {len(found)} offences")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
