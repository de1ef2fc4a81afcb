"""Memory, disk, descriptors and streams that are short: one line, the right exit code, and what was saved stays."""

import os
import resource
import subprocess

import pytest

from hostile import content, refused
from tiny import CONFIG, PROGRAM, ROOT, evenkeel, settings, succeed, tiny_model  # noqa: F401


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):  # noqa: F811
    out = tmp_path_factory.mktemp("run") / "fedit"
    succeed("train", CONFIG, "--out", out, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, data__limit=30,
                                                     evaluate__budgets="[1.0]", method__name="fedit"))
    return out


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "ids.jsonl").write_text('{"ids": [7, 8, 9]}\n')
    return tmp_path / "ids.jsonl"


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


# --- standard output ---

PRINTERS = {
    "list": ["list", "methods"],
    "print-config": ["train", CONFIG, "--print-config"],
    "help": ["train", "--help"],
    "version": ["--version"],
    "score": ["score", "--model", "<model>", "--input", "<texts>"],
    "score lines": ["score", "--model", "<model>", "--input", "<texts>", "--json"],
    "generate": ["generate", "--model", "<model>", "--prompt", "Once", "--max-new-tokens", "2"],
    "generate lines": ["generate", "--model", "<model>", "--prompt", "Once", "--max-new-tokens", "2", "--json"],
    "tokenize": ["tokenize", "--model", "<model>", "--input", "<texts>"],
    "evaluate": ["evaluate", "--model", "<model>", "--tasks", "builtin:facts", "--limit", "1"],
    "evaluate lines": ["evaluate", "--model", "<model>", "--tasks", "builtin:facts", "--limit", "1", "--json"],
    "report": ["report", "<run>"],
}


def printing(name, run, tiny_model, texts):
    places = {"<model>": tiny_model, "<texts>": texts, "<run>": run}
    return [str(places.get(word, word)) for word in PRINTERS[name]]


def told(arguments, **streams):
    done = subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, timeout=60, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, **streams)
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]


@pytest.mark.parametrize("printer", PRINTERS)
def test_a_full_device(run, tiny_model, texts, printer):  # noqa: F811
    with open("/dev/full", "w") as full:
        code, lines = told(printing(printer, run, tiny_model, texts), stdout=full)
    assert code == 1 and len(lines) == 1 and "standard output" in lines[0]


@pytest.mark.parametrize("printer", PRINTERS)
def test_a_closed_output(run, tiny_model, texts, printer):  # noqa: F811
    before = content(texts.parent)
    code, lines = told(printing(printer, run, tiny_model, texts), preexec_fn=lambda: os.close(1))
    assert code == 1 and len(lines) == 1 and "standard output" in lines[0]
    assert content(texts.parent) == before


def test_a_closed_output_does_not_end_in_a_file_of_ours(tiny_model, tmp_path):  # noqa: F811
    told(["evaluate", "--model", str(tiny_model), "--tasks", "builtin:facts", "--limit", "1", "--json", "--predictions",
          str(tmp_path / "p.jsonl")], preexec_fn=lambda: os.close(1))
    text = (tmp_path / "p.jsonl").read_text() if (tmp_path / "p.jsonl").exists() else ""
    assert '"accuracy"' not in text


@pytest.mark.parametrize("stream", [0, 2])
def test_another_closed_stream_changes_nothing(tmp_path, tiny_model, stream):  # noqa: F811
    words = ["init", "configs/tiny/model.json", "--seed", "3", "--out"]
    succeed(*words, tmp_path / "a")
    evenkeel(*words, tmp_path / "b", preexec_fn=lambda: os.close(stream))
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


# --- files that may not grow ---

WRITERS = {
    "train": ["train", CONFIG, "--set", "model.path=<model>", "--out", "<out>"],
    "pretrain": ["pretrain", "configs/tiny/pretrain.toml", "--out", "<out>"],
    "init": ["init", "configs/tiny/model.json", "--out", "<out>"],
    "export": ["export", "--run", "<run>", "--out", "<out>"],
    "export merged": ["export", "--run", "<run>", "--format", "merged", "--out", "<out>"],
    "report": ["report", "<run>", "--html", "<out>"],
    "logits": ["score", "--model", "<model>", "--input", "<texts>", "--logits", "<out>"],
    "train a tokenizer": ["tokenize", "--model", "<out>", "--input", "docs/methods.md", "--train", "300"],
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_that_may_not_grow(run, tiny_model, texts, tmp_path, writer):  # noqa: F811
    places = {"<model>": str(tiny_model), "<texts>": str(texts), "<run>": str(run), "<out>": str(tmp_path / "out")}
    words = list(map(str, WRITERS[writer]))
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    before = content(run)
    done = evenkeel(*words, preexec_fn=limited(resource.RLIMIT_FSIZE, 1000))
    assert done.returncode == 1, (done.returncode, done.stderr[-500:])
    lines = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert len(lines) == 1 and "[io]" in lines[0] and str(tmp_path) in lines[0], done.stderr[-500:]
    assert content(run) == before
    assert not any(path.name.count(".part-") for path in tmp_path.rglob("*"))


# --- memory and descriptors ---

@pytest.mark.parametrize("descriptors", [5, 8])
@pytest.mark.parametrize("command", ["score", "report", "tokenize"])
def test_few_descriptors(run, tiny_model, texts, descriptors, command):  # noqa: F811
    """Enough, or one line; never a crash or another answer."""
    words = printing(command, run, tiny_model, texts)
    whole = succeed(*words).stdout
    done = evenkeel(*words, preexec_fn=limited(resource.RLIMIT_NOFILE, descriptors))
    if done.returncode == 0:
        assert done.stdout == whole
    else:
        assert done.returncode in (1, 127) and len(done.stderr.splitlines()) == 1, done.stderr


@pytest.mark.parametrize("mebibytes", [700, 1000])
@pytest.mark.parametrize("command", ["score", "generate", "evaluate", "report"])
def test_little_address_space(run, tiny_model, texts, mebibytes, command):  # noqa: F811
    """Enough, or one line; never a signal."""
    done = evenkeel(*printing(command, run, tiny_model, texts), preexec_fn=limited(resource.RLIMIT_AS, mebibytes << 20))
    if done.returncode == 127:
        return  # the loader itself
    lines = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert done.returncode in (0, 1, 2) and len(lines) == (done.returncode != 0), (done.returncode, done.stderr)


# --- inputs that are no files ---

@pytest.mark.parametrize("device", ["/dev/null", "/dev/stdin"])
def test_devices_as_inputs(tiny_model, tmp_path, device):  # noqa: F811
    refused("score", "--model", tiny_model, "--input", device, says=[device], untouched=tmp_path, stdin=-3)
