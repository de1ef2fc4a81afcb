"""Tests a run over a stock SuperLink (flwr 1.42.0): the Flower app drives `evenkeel serve`. One client is a native
`evenkeel node`, the other a stock SuperNode whose ClientApp relays envelopes to a resident `evenkeel node`. The bits
equal those of a local run of the same config.
"""

import json
import os
import pathlib
import shutil
import subprocess

import flower_peer as peer
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_PROGRAM", "build/evenkeel")).resolve()
SETTINGS = ["model.path='builtin:tiny-olmoe'", "clients.count=2", "clients.budgets=[0.25, 1.0]", "clients.participation=1.0",
            "data.limit=24", "train.rounds=2", "evaluate.limit=2"]


def evenkeel(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], cwd=ROOT, capture_output=True, text=True, timeout=peer.DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superlink")
    shutil.copytree(ROOT / "flower", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    link = peer.SuperLink(folder)
    with link.processes:
        yield link


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if key not in ("seconds", "checksum")}
    return [without_seconds(entry) for entry in value] if isinstance(value, list) else value


def records(file):
    return [without_seconds(json.loads(line)) for line in file.read_text().splitlines()]


def test_a_run_with_a_native_node_and_a_supernode_is_bit_identical_to_a_local_run(link, tmp_path):
    changes = [word for setting in SETTINGS for word in ("--set", setting)]
    evenkeel("train", "configs/tiny/train.toml", *changes, "--out", tmp_path / "local")

    model = ["--model", "builtin:tiny-olmoe"]
    evenkeel("keygen", tmp_path / "native.pem")
    native = link.processes.start(PROGRAM, "node", "--superlink", f"127.0.0.1:{link.port}", "--insecure", "--key",
                                  tmp_path / "native.pem", *model, "--poll", 0.1, name="native")
    resident = link.processes.start(PROGRAM, "node", "--socket", tmp_path / "node.sock", *model, name="resident")
    supernode = link.supernode("--node-config", f'evenkeel.socket="{tmp_path / "node.sock"}"')

    keys = {"evenkeel.config": str(ROOT / "configs/tiny/train.toml"), "evenkeel.out": str(tmp_path / "run"),
            "evenkeel.program": str(PROGRAM), "evenkeel.set": "; ".join(SETTINGS)}
    told = link.run(keys, 2 * peer.DEADLINE)
    logs = "".join(f"\n== {p.log.name}\n{p.log.read_text()[-2500:]}" for p in (native, resident, supernode, link.process))
    assert (tmp_path / "run/adapter/adapter_model.safetensors").exists(), told[-5000:] + logs
    for file in ("rounds.jsonl", "evaluations.jsonl"):
        assert records(tmp_path / "run" / file) == records(tmp_path / "local" / file), file
    adapter = "adapter/adapter_model.safetensors"
    assert (tmp_path / "run" / adapter).read_bytes() == (tmp_path / "local" / adapter).read_bytes()
    assert "will send, in each round" in native.log.read_text() and "will send, in each round" in resident.log.read_text()
