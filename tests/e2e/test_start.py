"""Tests the cache of facts about large model files, which is valid until a file changes."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import time

import pytest

from tiny import CONFIG, PROGRAM, ROOT, one_line, sealed, settings, succeed

PIECE = 16 << 20


def tree_digest(file):
    """Computes the digest by its definition in base/format/fingerprint.h."""
    data = file.read_bytes()
    digests = b""
    for first in range(0, len(data), PIECE):
        piece = data[first:first + PIECE]
        piece += bytes(-len(piece) % 1024)
        words = memoryview(piece).cast("I")
        digests += b"".join(hashlib.sha256(words[s::16].tobytes()).digest() for s in range(16))
    return hashlib.sha256(digests + struct.pack("<Q", len(data))).hexdigest()


@pytest.fixture(scope="module")
def large_model(tiny_model, tmp_path_factory):
    """Creates a model of 36 MB, by its vocabulary, that has not changed for two seconds."""
    folder = tmp_path_factory.mktemp("large")
    config = json.loads((ROOT / "configs/tiny/model.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 140_000}))
    succeed("init", folder / "config.json", "--out", folder / "model")
    shutil.copy(tiny_model / "tokenizer.json", folder / "model")
    time.sleep(2.1)
    return folder / "model"


def with_cache(cache, *words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=600, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cache)})


def train(cache, model, out, *more):
    done = with_cache(cache, "train", CONFIG, "--out", out, *more,
                      *([] if more else settings(model__path=model, train__rounds=1, evaluate__limit=1, data__limit=30,
                                                 evaluate__budgets="[1.0]", method__name="fedit")))
    assert done.returncode == 0, done.stderr
    return done


def remembered(cache):
    (file,) = (cache / "evenkeel").glob("*.json")
    return file, json.loads(file.read_text())


def digest_in(run):
    files = json.loads((run / "manifest.json").read_text())["files"]
    (entry,) = [entry for entry in files if entry["path"].endswith("model.safetensors")]
    assert "sha256" not in entry
    return entry["sha256_tree"]


def test_a_large_file_is_hashed_again_only_after_a_change(large_model, tmp_path):
    cache, first, second = tmp_path / "cache", tmp_path / "first", tmp_path / "second"
    train(cache, large_model, first)
    assert digest_in(first) == tree_digest(large_model / "model.safetensors")
    file, facts = remembered(cache)
    assert facts["sha256_tree"] == digest_in(first) and facts["finite"]
    # The manifest then shows whether the cache was used
    file.write_text(sealed({**facts, "sha256_tree": "ab" * 32}) + "\n")
    train(cache, large_model, second)
    assert digest_in(second) == "ab" * 32
    os.utime(large_model / "model.safetensors")
    time.sleep(2.1)
    train(cache, large_model, tmp_path / "third")
    assert digest_in(tmp_path / "third") == digest_in(first)


def test_a_damaged_cache_entry_is_reported_and_recomputed(large_model, tmp_path):
    cache = tmp_path / "cache"
    train(cache, large_model, tmp_path / "one")
    file, _ = remembered(cache)
    file.write_text(file.read_text().replace("true", "fals"))
    done = train(cache, large_model, tmp_path / "two")
    assert "of no use" in done.stderr and file.name in done.stderr
    assert digest_in(tmp_path / "two") == digest_in(tmp_path / "one")


def test_a_cache_that_cannot_be_written_is_only_a_warning(large_model, tmp_path):
    (tmp_path / "cache").write_text("a file")
    done = train(tmp_path / "cache", large_model, tmp_path / "run")
    assert done.stderr.count("nothing is remembered of model files") == 1


def test_a_value_that_is_not_finite_is_found_after_a_change(large_model, tmp_path):
    cache, folder = tmp_path / "cache", tmp_path / "model"
    shutil.copytree(large_model, folder)
    time.sleep(2.1)
    words = ("generate", "--model", folder, "--prompt", "a", "--max-new-tokens", "1")
    assert with_cache(cache, *words).returncode == 0
    assert remembered(cache)[1]["finite"] and "sha256_tree" not in remembered(cache)[1]
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(struct.pack("<f", float("nan")))
    one_line(with_cache(cache, *words), "not finite")
