"""Tests output that cannot be written: one line and exit 1 for every command. A closed pipe is no error; a command whose
work it stops is interrupted.
"""

import json
import os
import resource
import shutil
import subprocess

import numpy
import pytest
from safetensors.numpy import save_file
from tokenizers import BertWordPieceTokenizer

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, lines, settings, succeed


@pytest.fixture(scope="module")
def place(tiny_model, tmp_path_factory):
    """Creates what the commands need: a run, texts, a line to tokenize."""
    folder = tmp_path_factory.mktemp("output")
    succeed("train", CONFIG, "--out", folder / "run",
            *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, clients__participation=0.4))
    (folder / "texts.jsonl").write_text('{"ids": [1, 2, 3]}\n' * 3)
    (folder / "line.txt").write_text("some words\n" * 3)
    (folder / "model").symlink_to(tiny_model)
    return folder


PRINTING = {
    "list": ["list", "tasks"],
    "version": ["--version"],
    "help": ["train", "--help"],
    "doctor": ["doctor"],
    "score": ["score", "--model", "{place}/model", "--input", "{place}/texts.jsonl"],
    "score --json": ["score", "--model", "{place}/model", "--input", "{place}/texts.jsonl", "--json"],
    "generate": ["generate", "--model", "{place}/model", "--prompt", "a", "--max-new-tokens", "1"],
    "evaluate": ["evaluate", "--model", "{place}/model", "--tasks", "builtin:tools", "--limit", "1"],
    "evaluate --json": ["evaluate", "--model", "{place}/model", "--tasks", "builtin:tools", "--limit", "1", "--json"],
    "report": ["report", "{place}/run"],
    "tokenize": ["tokenize", "--model", "{place}/model", "--input", "{place}/line.txt"],
    "gradient-bias": ["gradient-bias", "--run", "{place}/run", "--limit", "1"],
    "pg-alignment": ["pg-alignment", "--run", "{place}/run", "--limit", "1"],
    "print-config": ["train", "configs/tiny/train.toml", "--print-config"],
}


INTERRUPTED = {"evaluate --json": "evenkeel: nobody reads standard output any more; the evaluation has to be started again"}


def words_of(command, place):
    return [word.format(place=place) for word in PRINTING[command]]


def started(words, **options):
    return subprocess.run([PROGRAM, *map(str, words)], stderr=subprocess.PIPE, text=True, timeout=600, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)


def without_reader():
    """Returns the write end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def says_so(done, why):
    """Checks that one line of error that contains `why` follows the program's log."""
    errors = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    expected = f"evenkeel: [io] standard output: cannot be written: {why}"
    hints = {"No space left on device": " (df -h, df -i)", "File too large": " (ulimit -f, or the largest file of the file system)"}
    assert done.returncode == 1 and errors in ([expected], [expected + hints.get(why, "")]), done.stderr


@pytest.mark.parametrize("command", PRINTING)
def test_full_devices_closed_descriptors_and_limits_are_errors_and_broken_pipes_are_not(command, place, tmp_path):
    words = words_of(command, place)
    with open("/dev/full", "w") as full:
        says_so(started(words, stdout=full), "No space left on device")
    says_so(started(words, preexec_fn=lambda: os.close(1)), "Bad file descriptor")
    with open(tmp_path / "limited", "w") as limited:
        done = started(words, stdout=limited, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    says_so(done, "File too large")
    pipe = without_reader()
    done = started(words, stdout=pipe)
    os.close(pipe)
    if command in INTERRUPTED:
        assert done.returncode == 130 and INTERRUPTED[command] in done.stderr.splitlines()[-1], done.stderr
    else:
        assert done.returncode == 0 and "evenkeel: " not in done.stderr, done.stderr


def tiny_encoder(folder):
    """Creates the smallest possible BERT."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    BertWordPieceTokenizer({word: i for i, word in enumerate(words)}).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "bert", "vocab_size": len(words), "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 12, "max_position_embeddings": 16, "type_vocab_size": 2, "hidden_act": "gelu",
        "layer_norm_eps": 1e-12, "pad_token_id": 0}))
    layer, shapes = "encoder.layer.0", {"embeddings.word_embeddings.weight": (len(words), 8),
                                        "embeddings.position_embeddings.weight": (16, 8),
                                        "embeddings.token_type_embeddings.weight": (2, 8)}
    for name, out, width in [("attention.self.query", 8, 8), ("attention.self.key", 8, 8), ("attention.self.value", 8, 8),
                             ("attention.output.dense", 8, 8), ("intermediate.dense", 12, 8), ("output.dense", 8, 12)]:
        shapes |= {f"{layer}.{name}.weight": (out, width), f"{layer}.{name}.bias": (out,)}
    for name in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        shapes |= {f"{name}.LayerNorm.weight": (8,), f"{name}.LayerNorm.bias": (8,)}
    draw = numpy.random.default_rng(3)
    save_file({name: draw.normal(size=shape).astype("float32") for name, shape in shapes.items()},
              folder / "model.safetensors")


def test_bertscore_reports_output_errors_too(tmp_path):
    (tmp_path / "bert").mkdir()
    tiny_encoder(tmp_path / "bert")
    (tmp_path / "pairs.jsonl").write_text('{"candidate": "a b", "reference": "a c"}\n')
    command = ["bertscore", "--model", tmp_path / "bert", "--layer", "1", "--input", tmp_path / "pairs.jsonl"]
    assert "mean" in succeed(*command).stdout
    for flags in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            says_so(started([*command, *flags], stdout=full), "No space left on device")


def test_a_closed_stdout_is_not_reused_for_the_next_file(place, tmp_path):
    predictions = tmp_path / "predictions.jsonl"
    done = started([*words_of("evaluate --json", place), "--predictions", predictions],
                   preexec_fn=lambda: os.close(1))
    says_so(done, "Bad file descriptor")
    assert not predictions.exists() or all("output" in line for line in lines(predictions))


def test_a_terminal_gets_every_line_and_a_closed_terminal_is_an_error(place):
    ours, theirs = os.openpty()
    assert started(words_of("list", place), stdout=theirs).returncode == 0
    assert b"builtin:tools" in os.read(ours, 1 << 16)
    os.close(ours)
    says_so(started(words_of("list", place), stdout=theirs), "Input/output error")
    os.close(theirs)


def test_no_private_key_is_left_unless_its_public_one_was_told_or_not_wanted(tmp_path):
    ours, theirs = os.openpty()
    os.close(ours)
    says_so(started(["keygen", tmp_path / "hung-up.pem"], stdout=theirs), "Input/output error")
    os.close(theirs)
    pipe = without_reader()
    assert started(["keygen", tmp_path / "piped.pem"], stdout=pipe).returncode == 0
    os.close(pipe)
    assert [path.name for path in tmp_path.iterdir()] == ["piped.pem"]


def test_predictions_that_cannot_be_written_are_an_error(place):
    done = evenkeel(*words_of("evaluate", place), "--predictions", "/dev/full")
    assert done.returncode == 1 and "evenkeel: [io] /dev/full cannot be written" in done.stderr


def test_a_run_is_complete_even_if_its_table_or_log_cannot_be_written(place, tmp_path):
    def train(name, **options):
        out = tmp_path / name
        words = ["train", CONFIG, "--out", out, *settings(model__path=place / "model", train__rounds=1, evaluate__limit=1,
                                                          clients__participation=0.4)]
        done = subprocess.run([PROGRAM, *map(str, words)], timeout=600, cwd=ROOT,
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, **options)
        assert (out / "report.html").exists()
        assert (out / "adapter/adapter_model.safetensors").read_bytes() == expected
        return done.returncode
    expected = (place / "run/adapter/adapter_model.safetensors").read_bytes()
    pipe = without_reader()
    with open("/dev/full", "w") as full, open(os.devnull, "w") as null:
        assert train("full-log", stdout=null, stderr=full) == 0
        assert train("broken-log", stdout=null, stderr=pipe) == 0
        assert train("closed-log", stdout=null, preexec_fn=lambda: os.close(2)) == 0
        assert train("broken-both", stdout=pipe, stderr=pipe) == 0
        assert train("full-table", stdout=full, stderr=null) == 1
        assert train("nothing-open", preexec_fn=lambda: os.closerange(0, 3)) == 1
    os.close(pipe)


@pytest.mark.parametrize("command, file", [
    (["train", CONFIG, "--out", "{out}", "--set", "model.path='{place}/model'", "--set", "train.rounds=1"], ""),
    (["export", "--run", "{place}/run", "--out", "{out}"], ""),
    (["pretrain", "configs/tiny/pretrain.toml", "--out", "{out}"], ""),
    (["init", "configs/tiny/model.json", "--out", "{out}"], ""),
    (["report", "{place}/run", "--html", "{out}.html"], ".html"),
    (["score", "--model", "{place}/model", "--input", "{place}/texts.jsonl", "--logits", "{out}.st"], ".st"),
])
def test_a_file_beyond_the_size_limit_is_named_in_one_line(command, file, place, tmp_path):
    out = tmp_path / "out"
    words = [str(word).format(place=place, out=out) for word in command]
    done = started(words, stdout=subprocess.DEVNULL,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)))
    errors = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert done.returncode == 1 and len(errors) == 1, done.stderr
    assert f"{out}{file}" in errors[0] and "File too large" in errors[0]


@pytest.mark.parametrize("command", [["export", "--run", "{place}/run", "--out", "{out}"],
                                     ["init", "configs/tiny/model.json", "--out", "{out}"]])
def test_a_command_that_prints_nothing_needs_no_stdout(command, place, tmp_path):
    words = [word.format(place=place, out=tmp_path / "out") for word in command]
    with open("/dev/full", "w") as full:
        assert started(words, stdout=full).returncode == 0
    shutil.rmtree(tmp_path / "out")
    assert started(words, preexec_fn=lambda: os.closerange(0, 2)).returncode == 0


def test_results_before_an_error_are_still_printed(place, tmp_path):
    (tmp_path / "ids.jsonl").write_text("[1]\n[2]\n[99999]\n")
    done = evenkeel("tokenize", "--model", place / "model", "--decode", "--jsonl", "--input", tmp_path / "ids.jsonl")
    assert done.returncode == 1 and len([json.loads(line) for line in done.stdout.splitlines()]) == 2
