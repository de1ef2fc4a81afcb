"""Checks folders that cannot be read or written: the error names the folder before work begins, and nothing changes."""

import os
import shutil

import pytest

from hostile import refused
from tiny import CONFIG, ROOT, evenkeel, settings, succeed
from tiny import small_run as run  # noqa: F401

# Commands that read a folder, which is the last argument.
READERS = {
    "score": ["score", "--input", ROOT / "configs/demo.toml", "--model"],
    "generate": ["generate", "--prompt", "Once", "--model"],
    "tokenize": ["tokenize", "--input", ROOT / "configs/demo.toml", "--model"],
    "bertscore": ["bertscore", "--layer", "1", "--input", ROOT / "configs/demo.toml", "--model"],
    "doctor": ["doctor", "--model"],
    "evaluate a model": ["evaluate", "--tasks", "builtin", "--model"],
    "evaluate a run": ["evaluate", "--run"],
    "evaluate data": ["evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "boolq", "--data"],
    "gradient-bias": ["gradient-bias", "--run"],
    "pg-alignment": ["pg-alignment", "--run"],
    "export": ["export", "--out", "/nowhere/out", "--run"],
    "report": ["report"],
    "adapter": ["score", "--model", "builtin:tiny-olmoe", "--input", ROOT / "configs/demo.toml", "--adapter"],
}
# Commands that create a folder.
WRITERS = {
    "train": ["train", CONFIG, "--out"],
    "pretrain": ["pretrain", ROOT / "configs/tiny/pretrain.toml", "--out"],
    "init": ["init", ROOT / "configs/tiny/model.json", "--out"],
    "export": ["export", "--run", "<run>", "--out"],
}


def missing(at):
    return at / "nowhere"


def file(at):
    (at / "file").write_text("mine")
    return at / "file"


def below_a_file(at):
    return file(at) / "below"


def empty(at):
    (at / "empty").mkdir()
    return at / "empty"


def loop(at):
    (at / "loop").symlink_to("loop")
    return at / "loop"


def dangling(at):
    (at / "dangling").symlink_to("gone")
    return at / "dangling"


def long_name(at):
    return at / ("x" * 300)


def newline(at):
    return at / "new\nevenkeel: line"


def escape(at):
    return at / "\x1b[31mred"


def pipe(at):
    os.mkfifo(at / "pipe")
    return at / "pipe"


def full(at):
    (at / "full").mkdir()
    (at / "full/letter").write_text("mine")
    return at / "full"


def nobody(_):
    return "/proc/evenkeel"


def device(_):
    return "/dev/full"


WHERE = [(reader, where) for reader in READERS for where in (missing, file, empty, loop, long_name)] + [
    (reader, where) for reader in ("score", "evaluate a run", "report", "adapter") for where in (dangling, newline, escape, pipe)]


@pytest.mark.parametrize("reader, where", [pytest.param(*one, id=f"{one[0]}: {one[1].__name__}") for one in WHERE])
def test_a_folder_that_cannot_be_read_is_rejected(tmp_path, reader, where):
    refused(*READERS[reader], where(tmp_path), says=[str(tmp_path)[:20]], untouched=tmp_path)


@pytest.mark.parametrize("where", [file, below_a_file, full, loop, long_name, nobody, device], ids=lambda f: f.__name__)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_folder_that_cannot_be_created_is_rejected(tmp_path, run, tiny_model, writer, where):
    words = [run if word == "<run>" else word for word in WRITERS[writer]]
    model = settings(model__path=tiny_model) if writer == "train" else []
    out = where(tmp_path)
    named = {long_name: "xxx", below_a_file: tmp_path / "file"}.get(where, out)
    refused(*words, out, *model, says=["[io]", named], untouched=tmp_path)


@pytest.mark.parametrize("name", [b"caf\xe9", b"tab\there", b"quote\"d", "é中".encode(), b"line\nbreak", b"-dash", b"a b"],
                         ids=["not UTF-8", "tab", "quote", "UTF-8", "newline", "dash", "space"])
def test_a_run_folder_of_any_name_works_or_is_rejected_at_once(tmp_path, tiny_model, name):
    out = os.path.join(os.fsencode(tmp_path), name)
    done = evenkeel("train", CONFIG, *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1, data__limit=30,
                                               evaluate__budgets="[1.0]", method__name="fedit"), "--out", os.fsdecode(out), errors="replace")
    if done.returncode == 0:
        assert os.path.exists(os.path.join(out, b"adapter")) and os.path.exists(os.path.join(out, b"report.html"))
        succeed("report", os.fsdecode(out), errors="replace")
    else:
        assert done.returncode == 1 and done.stderr.count("\n") == 1 and done.stderr.startswith("evenkeel: "), done.stderr
        assert not os.listdir(tmp_path)


def test_an_output_folder_with_a_run_is_not_changed(tmp_path, run):
    copy = shutil.copytree(run, tmp_path / "run")
    refused("train", CONFIG, "--out", copy, says=["[io]", copy, "--resume"], untouched=tmp_path)


def test_a_run_does_not_overwrite_another_run(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/manifest.json").write_text('{"version": 1, "libraries": 2, "machine": 3, "files": 4}')
    refused("train", CONFIG, "--out", tmp_path / "run", says=["[io]", tmp_path / "run", "--resume"], untouched=tmp_path)


def test_a_folder_below_a_read_only_mount_is_rejected(tmp_path, run, tiny_model):
    mount = next((line.split()[1] for line in open("/proc/mounts") if line.split()[3].startswith("ro") and line.split()[1] != "/"), None)
    if mount is None:
        pytest.skip("nothing is mounted read-only here")
    for writer, words in WRITERS.items():
        words = [run if word == "<run>" else word for word in words]
        model = settings(model__path=tiny_model) if writer == "train" else []
        refused(*words, f"{mount}/evenkeel", *model, says=["[io]", mount, "Read-only file system"])
