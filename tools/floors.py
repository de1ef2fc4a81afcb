#!/usr/bin/env python3
"""Checks that includes point down only: between rooms, between the sub-rooms of a room, and between the files of a folder.

A room (a folder of src/) may include itself and the rooms on lower floors, never a room on its own floor. A sub-room may
include itself and the sub-rooms that stand before it in SUB_ROOMS. No files include each other in a circle; a header and the
source of the same name count as one file.

A file of room R is in namespace evenkeel::R, or in one nested in it; base is in evenkeel, and a testing.h in evenkeel::testing.

Also checks what keeps builds quick and headers of other versions apart: no <torch/torch.h>; of LibTorch a header sees
<ATen/core/Tensor.h>, what that brings in itself (c10/), and the thread pool; spdlog and fmt live in base/plain/log.cpp.
A testing.h may include more; tests and other such headers alone include it. Exit 1 and one line per offence.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLOORS = {"base": 0, "crypto": 1, "jinja": 1, "lora": 1, "privacy": 2, "secure": 2, "tokenizer": 2, "data": 3, "nn": 4, "models": 5, "methods": 5, "scoring": 6, "train": 6, "host": 6,
          "fed": 7, "cluster": 8, "flower": 8, "records": 8, "comparison": 9, "report": 10, "study": 11, "apps": 12}
SUB_ROOMS = {
    "base": ("plain", "system", "format", "unicode", "random"),
    "nn": ("compute", "kernels/primitives", "kernels/matmul", "kernels/layers", "dense", "attention", "moe",
           "engine", "kernels_engine", "cuda_kernels", "aten_engine", "engines"),
    "fed": ("config", "exchange", "store", "round", "run"),
    "flower": ("format", "http", "server", "node", "federation"),
    "study": ("definition", "running", "paper"),
}
# These use protobuf's headers, which LibTorch's include folders shadow. Of base they may include only base/plain.
PLAIN = ("flower/format", "flower/http", "flower/server", "flower/node", "crypto")
LIGHT = ("ATen/core/Tensor.h", "ATen/Parallel.h")
NAMESPACE = re.compile(r"^namespace (evenkeel[\w:]*) \{", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "src" else parts[0]


def sub_room_of(target):
    """Returns the sub-room of "room/.../file.h", or None for a file in the room itself or in a room without sub-rooms.
    """
    room, _, rest = target.partition("/")
    folder = rest.rpartition("/")[0]
    return next((name for name in SUB_ROOMS.get(room, ()) if folder == name or folder.startswith(name + "/")), None)


def for_tests(name):
    return name.endswith(("_test.cpp", "testing.h"))


def offences_of_library(path, target):
    if target == "torch/torch.h":
        yield "includes <torch/torch.h>: 18 s per unit, include what you use"
    if path.suffix == ".h" and path.name != "testing.h" and target.startswith(("ATen/", "torch/")) and target not in LIGHT:
        yield f"a header includes <{target}>, allowed: {', '.join(f'<{light}>' for light in LIGHT)}"
    if target.startswith(("spdlog/", "fmt/")) and path.relative_to(ROOT).as_posix() != "src/base/plain/log.cpp":
        yield f"includes <{target}>, allowed in src/base/plain/log.cpp alone"


def offences_of_room(room, target):
    other = target.split("/")[0]
    if other not in FLOORS:
        yield f'includes "{target}", expected "room/file.h" with a room of {", ".join(FLOORS)}'
    elif other != room and FLOORS[other] >= FLOORS[room]:
        yield f'room {room} (floor {FLOORS[room]}) includes "{target}" (floor {FLOORS[other]})'
    elif not (ROOT / "src" / target).exists() and not (ROOT / target).exists():
        yield f'includes "{target}", which does not exist'


def offences_of_sub_room(path, room, target):
    if for_tests(path.name) or room not in SUB_ROOMS:
        return
    here = sub_room_of(path.relative_to(ROOT / "src").as_posix())
    other, there = target.split("/")[0], sub_room_of(target)
    order = SUB_ROOMS[room]
    if other == room and here and there and order.index(there) > order.index(here):
        yield f'{room}/{here} includes "{target}", allowed of {room}: {", ".join(order[:order.index(here) + 1])}'
    if f"{room}/{here}" in PLAIN and other == "base" and there != "plain":
        yield f'{room}/{here} includes "{target}", allowed of base: plain'


def offences_of_include(path, room, bracket, target):
    if bracket == "<":
        yield from offences_of_library(path, target)
        return
    if target.endswith("/testing.h") and not for_tests(path.name):
        yield f'includes "{target}", which is for tests alone'
    yield from offences_of_room(room, target)
    yield from offences_of_sub_room(path, room, target)


def includes(path):
    """Returns [(line number, bracket, target)]."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, *match.groups()


def offences_of_namespace(path, room):
    allowed = "evenkeel::testing" if path.name == "testing.h" else "evenkeel" if room == "base" else f"evenkeel::{room}"
    for found in NAMESPACE.finditer(path.read_text(encoding="utf-8")):
        if not f"{found[1]}::".startswith(f"{allowed}::"):
            yield path.read_text(encoding="utf-8").count("\n", 0, found.start()) + 1, f"namespace {found[1]}, allowed: {allowed}"


def offences(path):
    room = room_of(path)
    if room not in FLOORS:
        yield 0, f"{room} is no room, known: {', '.join(FLOORS)}"
        return
    if room in SUB_ROOMS and not for_tests(path.name) and not sub_room_of(path.relative_to(ROOT / "src").as_posix()):
        yield 0, f"lies in no sub-room of {room}, allowed: {', '.join(SUB_ROOMS[room])}"
    yield from offences_of_namespace(path, room)
    for number, bracket, target in includes(path):
        for offence in offences_of_include(path, room, bracket, target):
            yield number, offence


def include_graph(files):
    """Returns "room/file" without suffix -> the files that it includes."""
    graph = collections.defaultdict(set)
    for path in files:
        if not path.name.endswith("_test.cpp"):
            name = path.relative_to(ROOT / "src" if path.is_relative_to(ROOT / "src") else ROOT).with_suffix("").as_posix()
            graph[name] |= {target.rpartition(".")[0] for _, bracket, target in includes(path) if bracket == '"'}
    return {name: {to for to in targets if to in graph and to != name} for name, targets in graph.items()}


def reachable(graph, start):
    seen, waiting = set(), [start]
    while waiting:
        found = graph[waiting.pop()] - seen
        seen |= found
        waiting.extend(found)
    return seen


def circles(files):
    """Returns groups of files each of which reaches every other one."""
    graph = include_graph(files)
    reached = {name: reachable(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]}
    return sorted(sorted(group) for group in groups)


def main():
    files = sorted(p for folder in ("src", "apps") for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".inc"))
    found = [f"{p.relative_to(ROOT)}:{n}: {text}" for p in files for n, text in offences(p)]
    found += [f"include circle: {', '.join(group)}" for group in circles(files)]
    for text in found:
        print(text)
    print(f"floors: {len(files)} files, {len(found)} offences")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
