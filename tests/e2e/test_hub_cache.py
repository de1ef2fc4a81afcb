"""Tests that models and data given by hub name are found where huggingface_hub finds them, in its local cache."""

import os
import pathlib
import subprocess

import pytest

from tiny import CONFIG, PROGRAM, ROOT, evenkeel, one_line, settings

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture
def cache(tiny_model, tmp_path):
    """Returns a cache folder with the layout of huggingface_hub: blobs, and snapshots of symbolic links to them."""
    def add(repository, files):
        folder = tmp_path / "hub" / repository
        snapshot = folder / "snapshots/0123456789abcdef0123456789abcdef01234567"
        for part in (snapshot, folder / "blobs", folder / "refs"):
            part.mkdir(parents=True)
        for name, content in files.items():
            (folder / "blobs" / name).write_bytes(content)
            (snapshot / name).symlink_to(os.path.relpath(folder / "blobs" / name, snapshot))
        (folder / "refs/main").write_text(snapshot.name)
    add("models--org--tiny", {file.name: file.read_bytes() for file in pathlib.Path(tiny_model).iterdir()})
    add("datasets--org--rows", {"train.jsonl": b'{"prompt": "Is it?", "completion": " yes"}\n' * 8,
                                "test.jsonl": b'{"prompt": "Is it so?", "completion": " no"}\n'})
    return tmp_path / "hub"


def run(cache, *words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=ROOT,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_CACHE": str(cache)})


def test_a_hub_name_resolves_to_the_snapshot_that_huggingface_hub_finds(cache, tiny_model):
    folder = hub.snapshot_download("org/tiny", cache_dir=cache, local_files_only=True)
    answers = [run(cache, "generate", "--model", model, "--prompt", "Question:", "--max-new-tokens", "6").stdout
               for model in ("org/tiny", "hf://org/tiny", "org/tiny@" + pathlib.Path(folder).name, folder, tiny_model)]
    assert answers[0] and len(set(answers)) == 1


def test_a_run_takes_its_model_and_data_by_hub_name(cache, tmp_path):
    done = run(cache, "train", CONFIG, "--out", tmp_path / "run", *settings(
        model__path='"org/tiny"', data__task='"files"', data__files__train='["hf://datasets/org/rows/train.jsonl"]',
        data__files__test='["hf://datasets/org/rows/test.jsonl"]', data__template='"plain"', data__partition__kind='"iid"', train__rounds=1,
        evaluate__limit=1, clients__count=2, clients__budgets="[0.125, 1.0]"))
    assert done.returncode == 0, done.stderr
    rows = hub.snapshot_download("org/rows", repo_type="dataset", cache_dir=cache, local_files_only=True)
    assert f'{rows}/train.jsonl' in (tmp_path / "run/config.toml").read_text()


@pytest.mark.parametrize("words, said", [
    (["generate", "--model", "hf://org/absent", "--prompt", "a"], ["hf://org/absent", "hf download org/absent"]),
    (["generate", "--model", "hf://datasets/org/rows", "--prompt", "a"], ["config.json"]),
    (["train", CONFIG, "--set", "model.path=org/tiny", "--set", "data.path='hf://datasets/org/none'"], ["data.path", "hf download --repo-type dataset org/none"]),
    (["train", CONFIG, "--set", "model.path=org/tiny", "--set", "data.path='hf://nothing'"], ["data.path", "ORG/NAME"]),
])
def test_the_error_for_a_missing_repository_names_the_download_command(cache, tmp_path, words, said):
    one_line(run(cache, *words, *(["--out", tmp_path / "run"] if words[0] == "train" else [])), *said)
    assert not (tmp_path / "run").exists()


def test_a_folder_with_the_same_name_has_precedence_over_the_cache(cache, tiny_model, tmp_path):
    (tmp_path / "org").mkdir()
    (tmp_path / "org/tiny").mkdir()
    done = evenkeel("generate", "--model", "org/tiny", "--prompt", "a", cwd=tmp_path)
    assert done.returncode == 1 and "org/tiny" in done.stderr
