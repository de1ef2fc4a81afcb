"""Creates a small model and federated runs of a few seconds with the program itself, from configs/tiny."""

import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from forked import fits, forked

PROGRAM = os.environ["EVENKEEL_PROGRAM"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = ROOT / "configs/tiny/train.toml"
nightly = pytest.mark.skipif("EVENKEEL_NIGHTLY" not in os.environ, reason="takes a minute or more: .ci/nightly runs it")
slow = pytest.mark.skipif("EVENKEEL_SLOW" not in os.environ, reason="takes long: `make test-slow` runs it")
METHODS = ("fedit", "ub-smoe", "a3smoe", "smoe-llb", "ffa-lora", "fedex-lora", "fed-sb", "flora", "florist", "flexlora", "hetlora",
           "slimmable-moe")


def started(*arguments, cwd=ROOT, timeout=600, **options):
    """Starts the program. For tests of its start, environment, limits and descriptors."""
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def evenkeel(*arguments, cwd=ROOT, timeout=600, errors="strict", input="", **options):
    """Runs the program and returns it finished. It is forked from a started one (forked.py), or started if an option of
    subprocess is given.
    """
    if options or not fits(cwd, *arguments):
        return started(*arguments, cwd=cwd, timeout=timeout, errors=errors, **({"input": input} if input else {}), **options)
    return forked(*arguments, cwd=cwd, timeout=timeout, errors=errors, input=input)


def succeed(*arguments, **options):
    done = evenkeel(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done


def settings(**changes):
    """Returns --set for every a__b=value. Values are formatted as TOML."""
    words = []
    for key, value in changes.items():
        words += ["--set", f"{key.replace('__', '.')}={value}"]
    return words


def lines(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def page_data(page):
    """Returns the data that a report page draws."""
    return json.loads(re.search(r'<script[^>]* id="data"[^>]*>(.*?)</script>', page, re.S)[1])


def without_seconds(value):
    """Returns records without wall times and without the checksum that covers them."""
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if key not in ("seconds", "checksum")}
    return [without_seconds(entry) for entry in value] if isinstance(value, list) else value


def sealed(value):
    """Returns a JSON object with a valid checksum as the program writes it (base/plain/sealed.h)."""
    text = json.dumps({key: entry for key, entry in value.items() if key != "checksum"}, separators=(",", ":"))[:-1] + ","
    return text + f'"checksum":"{hashlib.sha256(text.encode()).hexdigest()[:16]}"}}'


def one_line(done, *words):
    """Checks that the program failed with exit code 1 and one line that contains `words`, last on stderr."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    said = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert len(said) == 1 and done.stderr.rstrip().endswith(said[0]), done.stderr
    for word in words:
        assert str(word) in said[0], said[0]
    return said[0]


def random_model(folder, config):
    """Makes a random model of the shape that `config` describes, with the tokenizer of tiny-olmoe. Returns its folder."""
    (folder / "config.json").write_text(json.dumps(config))
    succeed("init", folder / "config.json", "--out", folder / "model")
    shutil.copy(ROOT / "assets/tiny-olmoe/tokenizer.json", folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Returns one model for all tests of a process, which must not change it."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    succeed("pretrain", "configs/tiny/pretrain.toml", "--out", folder)
    made = {path: path.read_bytes() for path in folder.iterdir()}
    yield folder
    assert {path: path.read_bytes() for path in folder.iterdir()} == made, "a test changed the model that all share: it should take a copy (model)"


@pytest.fixture
def model(tiny_model, tmp_path):
    """Returns a copy of the model that a test may damage."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    return folder


@pytest.fixture(scope="module")
def small_run(tiny_model, tmp_path_factory):
    """Runs one round of FedIT on few rows."""
    out = tmp_path_factory.mktemp("run") / "fedit"
    succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, data__limit=30,
                                                     evaluate__budgets="[1.0]", method__name="fedit"))
    return out
