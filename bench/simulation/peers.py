"""Starts pfl-research and Flower in their environment, each as its users start it."""
import json
import pathlib

import processes
import task

FOLDER = pathlib.Path(__file__).resolve().parent
PYTHON = task.ROOT / ".venv-simulation/bin/python"
PACKAGES = {"pfl": ("pfl", "torch", "transformers", "peft"), "flower": ("flwr", "ray", "torch", "transformers", "peft")}
VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({name: m.version(name) for name in sys.argv[1:]}))"


def mark_of(line):
    return json.loads(line[5:]) if line.startswith("mark ") else None


class Peer:
    """One of the two peers: `pfl` or `flower`."""

    def __init__(self, name):
        self.name = name

    def missing(self):
        """Returns why this system cannot run here; empty if it can."""
        if not PYTHON.exists():
            return f"no {PYTHON.relative_to(task.ROOT)}: tools/setup simulation makes it"
        return ""

    def versions(self):
        return json.loads(processes.output([PYTHON, "-c", VERSIONS, *PACKAGES[self.name]]))

    def plain(self, folder, clients):
        """Measures the steps alone: those of all users, in one loop without a federation."""
        words = [PYTHON, FOLDER / "peer_model.py", folder, "--clients", clients, "--per-round", clients]
        marks, _ = processes.run(words, mark_of, folder / "plain.log")
        (seconds,) = processes.between(marks)
        return {"steps": clients * task.STEPS, "wall_s": seconds["wall_s"], "cpu_s": seconds["cpu_s"]}

    def federated(self, folder, clients, per_round, rounds, workers=1, memory=False):
        """Runs rounds after a first one that is not counted. Returns their seconds."""
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", workers] if self.name == "pfl" and workers > 1 else []
        words = [PYTHON, *launcher, FOLDER / f"{self.name}_run.py", folder, "--clients", clients, "--per-round", per_round,
                 "--rounds", rounds + 1, "--workers", workers]
        return processes.summary(*processes.run(words, mark_of, folder / f"{self.name}.log", memory))
