"""Helpers of the package's tests: a run of a second, and a Python process that uses the package."""

import os
import pathlib
import subprocess
import sys

import evenkeel_moe as ek

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/tiny/train.toml"


def settings(model, **changes):
    return {"model.path": model, "train.rounds": 2, "data.limit": 60, "evaluate.limit": 2, "evaluate.budgets": [1.0], "method.name": "fedit",
            **{key.replace("__", "."): value for key, value in changes.items()}}


def train(model, out, changes=(), **options):
    return ek.train(CONFIG, set=settings(model, **dict(changes)), out=out, **options)


def python(code, *arguments, **options):
    """Starts a Python process that can import the package and runs `code`, with stdout and stderr piped."""
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests/python"), str(ROOT / "tests/e2e")])
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, cwd=ROOT, **options)
