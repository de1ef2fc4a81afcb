"""Checks damaged files of a run: every reader names the file and changes nothing."""

import json
import shutil

import pytest

from hostile import DEEP, cases, changed, damaged, put, refused, run  # noqa: F401
from tiny import sealed


@pytest.fixture
def folder(tmp_path):
    return tmp_path


def resealed(**changes):
    """Replaces members of the first object of a file and recomputes its checksum, to test the checks of its meaning."""
    return lambda text: sealed(json.loads(changed(**changes)(text.splitlines()[0]))) + "\n"


RECORDS = [
    ("rounds cut", "rounds.jsonl", lambda text: text[:len(text) // 2] + "\n", ["line 1"]),
    ("rounds no JSON", "rounds.jsonl", put("round 1\n"), ["line 1"]),
    ("rounds a list", "rounds.jsonl", put("[1]\n"), ["line 1"]),
    ("rounds deep", "rounds.jsonl", put("[" * DEEP + "\n"), ["line 1"]),
    ("rounds without a loss", "rounds.jsonl", resealed(loss=None), ["line 1", "loss"]),
    ("rounds of text", "rounds.jsonl", resealed(steps="4"), ["line 1", "steps"]),
    ("clients an object", "rounds.jsonl", resealed(clients={"id": 3}), ["line 1", "clients"]),
    ("dead experts of text", "rounds.jsonl", resealed(dead_experts=["0"]), ["line 1", "dead_experts"]),
    ("utilisation a number", "rounds.jsonl", resealed(utilization=3), ["line 1", "utilization"]),
    ("diagnostics a list", "rounds.jsonl", resealed(diagnostics=[3]), ["line 1", "diagnostics"]),
    ("bytes by part a number", "rounds.jsonl", resealed(bytes_up_parts=3), ["line 1", "bytes_up_parts"]),
    ("evaluations no JSON", "evaluations.jsonl", put("{\n"), ["line 1"]),
    ("evaluations of text", "evaluations.jsonl", resealed(rows="1"), ["line 1", "rows"]),
    ("evaluations without a task", "evaluations.jsonl", resealed(task=None), ["line 1", "task"]),
    ("manifest cut", "manifest.json", lambda text: text[:40], []),
    ("manifest a list", "manifest.json", put("[]"), []),
    ("manifest of numbers", "manifest.json", put('{"version": 3, "machine": 4, "files": 5}'), []),
    ("config empty", "config.toml", put(""), []),
    ("config cut", "config.toml", put("[train\n"), []),
    ("config of another method", "config.toml", put('[method]\nname = "fedavg"\n'), []),
]


@pytest.mark.parametrize("name, change, says", cases(RECORDS))
def test_damaged_records_are_rejected_by_report(run, folder, name, change, says):
    copy = shutil.copytree(run, folder / "run")
    damaged(copy / name, change)
    refused("report", copy, "--html", folder / "page.html", says=[name, *says], untouched=folder)


STATE = [
    ("marker cut", "commit.json", lambda text: text[:10]),
    ("marker empty", "commit.json", put("")),
    ("marker a list", "commit.json", put("[]")),
    ("marker with another bit", "commit.json", lambda text: text.replace('"round":1', '"round":3', 1)),
    ("marker of another round", "commit.json", resealed(round=2)),
    ("marker of text", "commit.json", resealed(round="1")),
    ("marker below 0", "commit.json", resealed(round=-1)),
    ("marker without files", "commit.json", resealed(files=None)),
    ("marker of other files", "commit.json", resealed(files=[3])),
    ("marker deep", "commit.json", put("[" * DEEP)),
    ("state cut", "round-1/state.safetensors", lambda old: old[:-4]),
    ("state with another bit", "round-1/state.safetensors", lambda old: old[:-1] + bytes([old[-1] ^ 1])),
    ("state missing", "round-1/state.safetensors", None),
    ("memory cut", "round-1/memory.safetensors", lambda old: old[:4]),
]


@pytest.mark.parametrize("name, change", cases(STATE))
def test_damaged_state_is_rejected_by_its_readers(run, folder, name, change):
    copy = shutil.copytree(run, folder / "run")
    file = copy / "checkpoint" / name
    if change is None:
        file.unlink()
    else:
        old = file.read_bytes()
        new = change(old if name.endswith("safetensors") else old.decode())
        file.write_bytes(new if isinstance(new, bytes) else new.encode())
    refused("export", "--run", copy, "--out", folder / "out", says=["checkpoint"], untouched=folder)
