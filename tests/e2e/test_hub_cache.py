"""Tests that models and data given by hub name are found where huggingface_hub finds them, in its local cache."""

import json
import os
import pathlib
import re
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
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=600, cwd=ROOT,
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


# Answers for the newest huggingface_hub: the addresses that it parses, the cache of each environment, and snapshots.
PEER = r"""
import importlib, json, os, pathlib, sys
from huggingface_hub import constants, parse_hf_uri, snapshot_download
from huggingface_hub.errors import HfUriError, LocalEntryNotFoundError
asked = json.load(sys.stdin)

def parsed(address):
    try:
        uri = parse_hf_uri(address)
    except HfUriError:
        return None
    return [uri.type, uri.id, uri.revision or "main"]

def cache(variables):
    for name in asked["variables"]:
        os.environ.pop(name, None)
    os.environ.update(variables)
    importlib.reload(constants)
    return str(pathlib.Path(constants.HF_HUB_CACHE).expanduser())

def snapshot(revision):
    try:
        return snapshot_download("org/refs", revision=revision, cache_dir=asked["cache"], local_files_only=True)
    except (LocalEntryNotFoundError, OSError):
        return None

json.dump({"parsed": [parsed(address) for address in asked.get("addresses", [])],
           "snapshots": [snapshot(revision) for revision in asked.get("revisions", [])],
           "caches": [cache(variables) for variables in asked.get("environments", [])]}, sys.stdout)
"""
VARIABLES = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "ROOM"]


def peer(**asked):
    python = ROOT / ".venv-v5/bin/python"
    if not python.exists():
        pytest.skip("needs .venv-v5 with the newest huggingface_hub")
    done = subprocess.run([python, "-c", PEER], input=json.dumps({"variables": VARIABLES, **asked}), capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


ADDRESSES = [
    "org/name", "models/org/name", "datasets/org/name", "dataset/org/name", "model/org/name", "models", "datasets/org", "org", "",
    "org/name@main", "org/name@v1.0+cu121", "org/name@refs/pr/3", "datasets/org/name@refs/convert/parquet-v2/x/0.parquet",
    "org/name@refs/pr/x/a", "org/name@refs/heads/main", "org/name@feature%2Fx/a.json", "org/name@a%2fb%2Fc", "org/name@%zz",
    "org/name/a@b.txt", "org/name/a/b@c", "org/name@", "org/name@/a", "org@x/name", "@x", "org/name//a", "org/name/a//b", "/org/name/",
    "org/name/", "org/-name", "org/name-", ".org/name", "o.r-g/na_me", "org/name.git", "org.git/name", "o--rg/name", "o..rg/name",
    "caf\u00e9/name", "org/na me", "a" * 96 + "/" + "b" * 96, "a" * 97 + "/b", "a/" + "b" * 97, "123/456", "_a/b_",
]


def test_addresses_are_parsed_as_huggingface_hub_parses_them():
    asked = ["hf://" + address for address in ADDRESSES]
    for address, parts in zip(asked, peer(addresses=asked)["parsed"], strict=True):
        said = one_line(evenkeel("generate", "--model", address, "--prompt", "a"), "the model's path")
        found = re.search(r"hf download (--repo-type dataset )?(?:--revision (\S+) )?(\S+)$", said)
        assert (found is None) == ("allowed: hf://" in said)
        assert (found and ["dataset" if found[1] else "model", found[3], found[2] or "main"]) == parts, (address, said)


ENVIRONMENTS = [
    {"HOME": "/h"}, {"HOME": "/h/", "HF_HUB_CACHE": "~/c"}, {"HOME": "/h", "HF_HUB_CACHE": "$HOME/c"},
    {"HOME": "/h", "HUGGINGFACE_HUB_CACHE": "~/old"}, {"HOME": "/h", "HF_HOME": "~"}, {"HOME": "/h", "HF_HOME": "${ROOM}/x", "ROOM": "~/r"},
    {"HOME": "/h", "XDG_CACHE_HOME": "~/x/"}, {"HOME": "/h", "XDG_CACHE_HOME": "$ROOM", "ROOM": "/r"}, {"HOME": "/h", "HF_HUB_CACHE": "~root/c"},
    {"HF_HUB_CACHE": "~/c"}, {},
    {"HOME": "/h", "HF_HUB_CACHE": "/a/$NO_SUCH_NAME/${NO_SUCH_NAME}/$"}, {"HOME": "/h", "HF_HOME": "/a", "HF_HUB_CACHE": "/b", "ROOM": "/r"},
    {"HOME": "/h", "HF_HUB_CACHE": "/a/${ROOM"}, {"HOME": "/h", "HF_HUB_CACHE": "$ROOM", "ROOM": "/r/$HOME"}, {"HOME": "/h", "HF_HOME": ""},
    {"HOME": "", "HF_HUB_CACHE": "~"},
]


def test_the_cache_is_in_the_folder_that_huggingface_hub_uses():
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES} | {"OMP_NUM_THREADS": "1"}
    for variables, folder in zip(ENVIRONMENTS, peer(environments=ENVIRONMENTS)["caches"], strict=True):
        done = subprocess.run([PROGRAM, "generate", "--model", "hf://org/absent", "--prompt", "a"], capture_output=True, text=True,
                              env=clean | variables, cwd="/", timeout=600)
        said = re.search(r"the hub cache (\S*) does not have", one_line(done))[1]
        assert os.path.normpath(said) == folder, variables


def test_snapshots_of_all_kinds_of_revisions_are_found(tmp_path):
    repository = tmp_path / "models--org--refs"
    commits = [letter * 40 for letter in "abcde"] + ["abc"]
    for commit in commits:
        (repository / "snapshots" / commit).mkdir(parents=True)
    for name, commit in [("main", commits[0]), ("refs/pr/1", commits[1]), ("refs/convert/parquet", commits[2]), ("feature/x", commits[3]),
                         ("with-a-newline", commits[0] + "\n"), ("v1", commits[4]), (commits[1], commits[2]), ("gone", "f" * 40)]:
        (repository / "refs" / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / "refs" / name).write_text(commit)
    revisions = ["main", "refs/pr/1", "refs/pr/2", "refs/convert/parquet", "feature/x", "feature", "with-a-newline", "v1", "abc", commits[1],
                 commits[4][:7], "gone", "f" * 40, commits[0].upper()]
    for revision, snapshot in zip(revisions, peer(revisions=revisions, cache=str(tmp_path))["snapshots"], strict=True):
        for model in ("org/refs@" + revision, "hf://org/refs@" + revision.replace("feature/", "feature%2F")):
            said = one_line(run(tmp_path, "generate", "--model", model, "--prompt", "a"))
            found = re.search(r"(/\S+/snapshots/\w+)/", said)
            assert (found and os.path.realpath(found[1])) == (snapshot and os.path.realpath(snapshot)), (model, said)
