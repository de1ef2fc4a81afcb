"""Tests that a run goes on, and is used, with the files that it was settled with, or is refused naming the file."""

import json
import os
import pathlib
import shutil
import subprocess
import tomllib

import pytest

from tiny import PROGRAM, evenkeel, lines, one_line, started, succeed

ADAPTER = "adapter/adapter_model.safetensors"
CONFIG = """threads = 1
[model]
path = "m"
compute_dtype = "float32"
[lora]
rank = 3
alpha = 6
[data]
task = "files"
template = "plain"
[data.files]
train = ["rows.jsonl"]
score = "nll"
[clients]
count = 2
budgets = [0.25, 1.0]
[method]
name = "fedit"
[train]
rounds = 1
batch_size = 2
[evaluate]
budgets = [1.0]
"""
SIDE_FILES = {"tokenizer_config.json": '{"add_prefix_space": true}', "generation_config.json": '{"eos_token_id": 3}',
              "special_tokens_map.json": '{"pad_token": "<|padding|>"}', "added_tokens.json": '{"<|more|>": 511}',
              "chat_template.jinja": "{{ messages[0].content }}", "tokenizer.model": "sentences", "adapter_config.json": "{}",
              "additional_chat_templates/tool_use.jinja": "{{ messages[0].content }}"}


def rows(folder, question):
    folder.mkdir(exist_ok=True)
    text = "".join(json.dumps({"prompt": question.format(i), "completion": f" {i}"}) + "\n" for i in range(12))
    (folder / "rows.jsonl").write_text(text)
    return folder


@pytest.fixture
def place(tiny_model, tmp_path):
    """Returns a folder with run.toml, and two working folders a and b with other rows and another model under the same names."""
    (tmp_path / "run.toml").write_text(CONFIG)
    for name, question in (("a", "What is {}+0?"), ("b", "Which town is number {}?")):
        shutil.copytree(tiny_model, rows(tmp_path / name, question) / "m")
    other_weights(tmp_path / "b/m")
    return tmp_path


def other_weights(folder):
    """Changes one bit of the last weight, and keeps size and header."""
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-2] ^= 1
    (folder / "model.safetensors").write_bytes(weights)


def begin(place, *words):
    """Makes the run place/r from folder a, and place/whole, the run of two rounds that was never stopped."""
    succeed("train", "../run.toml", "--out", "../r", *words, cwd=place / "a")
    succeed("train", "../run.toml", "--out", "../whole", "--set", "train.rounds=2", *words, cwd=place / "a")


def expect_whole(place):
    assert (place / "r" / ADAPTER).read_bytes() == (place / "whole" / ADAPTER).read_bytes()


MORE = ["--resume", "--set", "train.rounds=2"]


def test_a_run_resumes_with_its_own_files_from_every_folder(place):
    begin(place)
    succeed("train", "../run.toml", "--out", "../r", *MORE, cwd=place / "b")
    expect_whole(place)
    files = {pathlib.Path(entry["path"]).name: entry for entry in json.loads((place / "r/manifest.json").read_text())["files"]}
    assert files["rows.jsonl"]["path"] == str(place / "a/rows.jsonl")
    assert files["config.json"]["path"] == str(place / "a/m/config.json") and files["config.json"]["model"] == "base"


def test_the_config_of_the_run_folder_resumes_it_from_every_folder(place):
    begin(place)
    succeed("train", place / "r/config.toml", "--out", place / "r", *MORE, cwd=place / "b")
    expect_whole(place)


def test_other_files_that_are_asked_for_are_refused_by_key(place):
    begin(place)
    for setting, key in (("data.files.train=['../b/rows.jsonl']", "data.files.train"), ("model.path=../b/m", "model.path")):
        one_line(evenkeel("train", "../run.toml", "--out", "../r", *MORE, "--set", setting, cwd=place / "a"), key, "/b/", "/a/")
    succeed("train", "../run.toml", "--out", "../r", *MORE, "--set", "model.path=./m/", "--set",
            f"data.files.train=['{place}/b/../a/rows.jsonl']", cwd=place / "a")
    expect_whole(place)


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_file_that_is_added_to_the_model_is_refused_by_name(place, name):
    succeed("train", "../run.toml", "--out", "../r", cwd=place / "a")
    added = place / "a/m" / name
    added.parent.mkdir(exist_ok=True)
    added.write_text(SIDE_FILES[name])
    uses = [["train", "../run.toml", "--out", "../r", *MORE], ["score", "--run", "../r", "--input", "rows.jsonl"]]
    for words in uses:
        one_line(evenkeel(*words, cwd=place / "a"), name, "was not there when the run was made", "take it away")
    added.unlink()
    for unread in ("README.md", "optimizer.pt", "consolidated.safetensors"):
        (place / "a/m" / unread).write_text("x")
    succeed(*uses[0], cwd=place / "a")


def uses_of(run, extra=()):
    """Returns the commands that load the base of a run."""
    return {"score": ["score", "--run", run, "--input", run.parent / "a/rows.jsonl", *extra],
            "generate": ["generate", "--run", run, "--prompt", "Hi", "--max-new-tokens", "2", *extra],
            "evaluate": ["evaluate", "--run", run, *extra],
            "export": ["export", "--run", run, "--out", run.parent / "merged", "--format", "merged", *extra],
            "gradient-bias": ["gradient-bias", "--run", run, "--limit", "1", *extra],
            "pg-alignment": ["pg-alignment", "--run", run, "--limit", "1", *extra],
            "resume": ["train", run / "config.toml", "--out", run, *MORE, *extra]}


@pytest.mark.parametrize("change", ["weights", "tokenizer", "removed"])
def test_a_base_that_has_changed_is_refused_by_every_command(place, change):
    succeed("train", "../run.toml", "--out", "../r", "--set", "method.name=ub-smoe", cwd=place / "a")
    base = place / "a/m"
    if change == "weights":
        other_weights(base)
    elif change == "tokenizer":
        (base / "tokenizer.json").write_text((base / "tokenizer.json").read_text() + "\n")
    else:
        (base / "config.json").unlink()
    name, says = {"weights": ("model.safetensors", "has changed"), "tokenizer": ("tokenizer.json", "has changed"),
                  "removed": ("config.json", "is gone")}[change]
    for command, words in uses_of(place / "r").items():
        one_line(evenkeel(*words, cwd=place), f"a/m/{name} {says}", "--base FOLDER")
    assert not (place / "merged").exists()


def test_a_base_of_another_working_folder_is_not_taken(place):
    begin(place)
    words = ["score", "--run", place / "r", "--input", place / "a/rows.jsonl", "--json"]
    (place / "a/rows.jsonl").write_text('{"text": "What is 3+0? 3"}\n')
    assert succeed(*words, cwd=place / "b").stdout == succeed(*words, cwd=place / "a").stdout


def test_a_base_that_was_moved_is_named_and_checked(place):
    begin(place, "--set", "method.name=ub-smoe")
    (place / "a/m").rename(place / "moved")
    text = succeed("generate", "--run", place / "whole", "--base", "moved", "--prompt", "Hi", "--max-new-tokens", "3", cwd=place).stdout
    for command, words in uses_of(place / "r").items():
        one_line(evenkeel(*words, cwd=place), f"{place}/a/m, the base model of the run, is not there", "--base FOLDER")
    for command, words in uses_of(place / "r", ["--base", "b/m"]).items():
        one_line(evenkeel(*words, cwd=place), f"{place}/b/m/model.safetensors has changed")
    for command, words in uses_of(place / "r", ["--base", "moved"]).items():
        succeed(*words, cwd=place)
    expect_whole(place)  # the last command went on
    manifest = json.loads((place / "r/manifest.json").read_text())
    assert manifest["models"]["base"]["folder"] == str(place / "moved") and manifest["changes"][-1]["model.path"] == str(place / "moved")
    assert f'path = "{place}/moved"' in (place / "r/config.toml").read_text()
    again = succeed("generate", "--run", place / "r", "--prompt", "Hi", "--max-new-tokens", "3", cwd=place / "b")  # recorded by the resumed run
    assert again.stdout == text
    succeed("report", place / "r", place / "whole")


def test_base_goes_with_a_run_alone(place):
    one_line(evenkeel("score", "--model", "a/m", "--base", "b/m", "--input", "a/rows.jsonl", cwd=place), "--base goes with --run")
    one_line(evenkeel("train", "../run.toml", "--base", "m", "--out", "../r", cwd=place / "a"), "--base is m", "--resume")
    one_line(evenkeel("train", "../run.toml", "--base", "m", "--out", "../r", "--resume", cwd=place / "a"), "holds no run yet")
    assert not (place / "r").exists()


def test_a_base_in_several_files_counts_file_by_file(place):
    """Shards count, and so does the index that names them."""
    base = place / "a/m"
    (base / "model.safetensors").rename(base / "model-00001-of-00001.safetensors")
    header = (base / "model-00001-of-00001.safetensors").read_bytes()
    names = json.loads(header[8:8 + int.from_bytes(header[:8], "little")])
    index = {"weight_map": {name: "model-00001-of-00001.safetensors" for name in names if name != "__metadata__"}}
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    succeed("train", "../run.toml", "--out", "../r", cwd=place / "a")
    shutil.copy(place / "b/m/model.safetensors", base / "model.safetensors")  # would be read in the place of the shards
    resume = ["train", "../run.toml", "--out", "../r", *MORE]
    one_line(evenkeel(*resume, cwd=place / "a"), "model.safetensors")
    (base / "model.safetensors").unlink()
    (base / "model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    one_line(evenkeel(*resume, cwd=place / "a"), "model.safetensors.index.json has changed")
    (base / "model.safetensors.index.json").write_text(json.dumps(index))
    succeed(*resume, cwd=place / "a")


# --- names of the hub ---

FIRST, SECOND = "a" * 40, "b" * 40


def cached(place, commit, source):
    repository = place / "hub/models--acme--tiny"
    shutil.copytree(source, repository / "snapshots" / commit)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs/main").write_text(commit)
    return repository


def with_cache(place, *words, cwd="a", **environment):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, cwd=place / cwd,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_CACHE": str(place / "hub"), **environment})


@pytest.mark.parametrize("name", ["acme/tiny", "hf://acme/tiny", "acme/tiny@main"])
def test_a_run_keeps_its_revision_when_the_branch_moves(place, name):
    repository = cached(place, FIRST, place / "a/m")
    train = ["train", "../run.toml", "--set", f"model.path={name}"]
    assert with_cache(place, *train, "--out", "../whole", "--set", "train.rounds=2").returncode == 0
    assert with_cache(place, *train, "--out", "../r").returncode == 0
    cached(place, SECOND, place / "b/m")
    manifest = json.loads((place / "r/manifest.json").read_text())
    assert manifest["models"]["base"]["revision"] == FIRST and f'path = "hf://acme/tiny@{FIRST}"' in manifest["config"]
    done = with_cache(place, *train, "--out", "../r", *MORE, cwd="b")
    assert done.returncode == 0, done.stderr
    expect_whole(place)
    text = [with_cache(place, "generate", "--run", place / "r", "--prompt", "Hi", "--max-new-tokens", 4).stdout for _ in range(2)]
    (repository / "snapshots" / FIRST).rename(place / "moved")
    one_line(with_cache(place, "generate", "--run", place / "r", "--prompt", "Hi"), f"hf download --revision {FIRST} acme/tiny")
    moved = with_cache(place, "generate", "--run", place / "r", "--base", place / "moved", "--prompt", "Hi", "--max-new-tokens", 4)
    assert moved.stdout == text[0] == text[1]


@pytest.mark.parametrize("words", [
    ["score", "--model", "acme/none", "--input", "rows.jsonl"], ["generate", "--model", "acme/none", "--prompt", "a"],
    ["evaluate", "--model", "acme/none", "--tasks", "builtin"], ["tokenize", "--model", "acme/none", "--input", "rows.jsonl"],
    ["export", "--model", "acme/none", "--adapter", "m", "--out", "x"], ["doctor", "--model", "acme/none"],
    ["train", "../run.toml", "--set", "model.path=acme/none", "--out", "x"],
    ["node", "--superlink", "127.0.0.1:9", "--insecure", "--key", "k", "--model", "acme/none", "--data", "rows.jsonl"]],
    ids=lambda words: words[0])
def test_a_hub_name_that_is_not_cached_says_how_to_fetch_it(place, words):
    succeed("keygen", "k", cwd=place / "a")
    one_line(with_cache(place, *words), "acme/none", "which is no folder here", "hub cache", "to fetch it: hf download acme/none")
    assert not (place / "a/x").exists()


# --- tables and home folders ---

def printed(place, *words):
    return tomllib.loads(succeed("train", "run.toml", "--print-config", *words, cwd=place).stdout)


@pytest.mark.parametrize("setting", ["train={rounds=5}", "train = { 'rounds' = 5 }", "train.rounds=5"])
def test_a_table_that_is_set_changes_its_keys_alone(place, setting):
    before, after = printed(place), printed(place, "--set", setting)
    assert after["train"].pop("rounds") == 5 and before["train"].pop("rounds") == 1
    assert after == before and after["train"]["batch_size"] == 2


def test_a_table_is_merged_at_every_depth_and_never_becomes_a_value(place):
    text = (place / "run.toml").read_text()
    (place / "run.toml").write_text(text + "[train.optimizer]\nlr = 0.01\neps = 1e-3\n")
    after = printed(place, "--set", "train={optimizer={lr=1e-3}}")["train"]
    assert after["optimizer"]["lr"] == 0.001 and after["optimizer"]["eps"] == 0.001 and after["batch_size"] == 2
    for setting, says in (("train=3", "train is a table, not 3"), ("threads={a=1}", "threads is 1, not a table"),
                          ("train={optimizer=2}", "train.optimizer is a table")):
        one_line(evenkeel("train", "run.toml", "--print-config", "--set", setting, cwd=place), says)
    pattern = printed(place, "--set", "clients.budgets={values=[0.5]}")["clients"]["budgets"]
    assert pattern["values"] == [0.5]  # a list is replaced, also by the other form of the key


def test_an_extension_in_a_table_is_an_extension(place):
    begin(place)
    succeed("train", "../run.toml", "--out", "../r", "--resume", "--set", "train={rounds=2}", cwd=place / "b")
    expect_whole(place)


def at_home(home, *words, **options):
    return started(*words, **options) if home is None else subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(home), "OMP_NUM_THREADS": "1"}, **options)


def test_a_tilde_in_a_config_or_a_flag_is_the_home_folder(place):
    home = place / "home"
    home.mkdir()
    (place / "a/m").rename(home / "m")
    (place / "a/rows.jsonl").rename(home / "rows.jsonl")
    text = CONFIG.replace('"m"', '"~/m"').replace('"rows.jsonl"', '"~/rows.jsonl"') + '[output]\ndir = "~/runs/x"\n'
    (home / "run.toml").write_text(text)
    done = at_home(home, "train", "~/run.toml", cwd=place / "a")
    assert done.returncode == 0, done.stderr
    assert (home / "runs/x" / ADAPTER).exists() and not (place / "a/~").exists() and f"the run is in {home}/runs/x" in done.stderr
    for words in (["score", "--run", "~/runs/x", "--input", "~/rows.jsonl", "--logits", "~/logits.safetensors"],
                  ["train", "~/run.toml", "--out=~/runs/y"], ["export", "--run=~/runs/x", "--out=~/adapter"],
                  ["evaluate", "--run", "~/runs/x", "--predictions=~/predictions.jsonl"], ["report", "~/runs/x", "--html", "~/page.html"]):
        done = at_home(home, *words, cwd=place / "a")
        assert done.returncode == 0, done.stderr
    made = {path.name for path in home.iterdir()}
    assert {"runs", "adapter", "logits.safetensors", "predictions.jsonl", "page.html"} <= made and {"x", "y"} == {path.name for path in (home / "runs").iterdir()}
    assert not (place / "a/~").exists()


def test_a_tilde_without_a_home_or_of_a_user_is_refused(place):
    for path in ("~root/x", "~nobody"):
        one_line(evenkeel("train", "run.toml", "--out", path, cwd=place), f"--out is {path}", "home folder of a user")
        one_line(evenkeel("train", "run.toml", "--set", f"output.dir={path}", cwd=place), f"output.dir is {path}")
    no_home = {key: value for key, value in os.environ.items() if key != "HOME"}
    done = subprocess.run([PROGRAM, "train", "run.toml", "--out=~/x"], capture_output=True, text=True, timeout=60, env=no_home, cwd=place)
    one_line(done, "--out is ~/x", "HOME is not set")
    assert sorted(path.name for path in place.iterdir()) == ["a", "b", "run.toml"]


# --- studies ---

STUDY = """[study]
base = "../run.toml"
seeds = [1, 2]
reference = "fedit"
endpoint = "log_likelihood"
[[study.arm]]
name = "fedit"
set = []
[[study.arm]]
name = "low"
set = ["train.optimizer={lr=1e-3}"]
"""


def study_done(*words, cwd):
    """Runs a study, which starts the program once more for each run."""
    done = started(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def study(place):
    (place / "a/two.toml").write_text(STUDY)
    return place


def test_a_study_goes_on_from_another_folder_with_its_own_files(study):
    place = study
    whole = study_done("study", "two.toml", "--out", "../whole", cwd=place / "a")
    study_done("study", "two.toml", "--out", "../s", "--only", "fedit:1", cwd=place / "a")
    for words in (["two.toml", "--out", "../s"], [place / "s/study.toml", "--out", place / "s"]):
        shutil.copy(place / "a/two.toml", place / "b/two.toml")
        study_done("study", *words, "--resume", cwd=place / "b")
    for run in ("fedit/seed-1", "fedit/seed-2", "low/seed-1", "low/seed-2"):
        assert (place / "s" / run / ADAPTER).read_bytes() == (place / "whole" / run / ADAPTER).read_bytes()
    assert whole.returncode == 0
    text = (place / "s/low/arm.toml").read_text()
    assert f'path = "{place}/a/m"' in text and "lr = 0.001" in text and "batch_size = 2" in text
    assert "batch_size = 2" in (place / "s/low/seed-1/config.toml").read_text()


def test_a_study_keeps_its_revision_and_its_files(study):
    place = study
    cached(place, FIRST, place / "a/m")
    text = CONFIG.replace('"m"', '"acme/tiny"').replace('"rows.jsonl"', '"row*.jsonl"')
    (place / "run.toml").write_text(text)
    assert with_cache(place, "study", "two.toml", "--out", "../s", "--only", "fedit:1").returncode == 0
    cached(place, SECOND, place / "b/m")
    (place / "a/rows-more.jsonl").write_text((place / "b/rows.jsonl").read_text())
    done = with_cache(place, "study", "two.toml", "--out", "../s", "--resume")
    assert done.returncode == 0, done.stderr
    for run in ("fedit/seed-1", "fedit/seed-2", "low/seed-2"):
        manifest = json.loads((place / "s" / run / "manifest.json").read_text())
        assert manifest["models"]["base"]["revision"] == FIRST
        assert [pathlib.Path(entry["path"]).name for entry in manifest["files"] if "model" not in entry] == ["rows.jsonl"]


def test_a_study_refuses_a_model_that_has_changed_by_name(study):
    place = study
    study_done("study", "two.toml", "--out", "../s", "--only", "fedit:1", cwd=place / "a")
    (place / "a/m/tokenizer_config.json").write_text(SIDE_FILES["tokenizer_config.json"])
    one_line(started("study", "two.toml", "--out", "../s", "--resume", cwd=place / "a"), "fedit:1", "tokenizer_config.json", "was not there")
    assert not (place / "s/low/seed-1").exists()


def test_arms_that_differ_in_their_own_paths_keep_them(study):
    place = study
    (place / "a/two.toml").write_text(STUDY.replace('endpoint', 'free = ["lora.init"]\nendpoint', 1))
    study_done("study", "two.toml", "--out", "../s", "--only", "fedit:1", cwd=place / "a")
    one_line(started("study", "two.toml", "--out", "../s", "--resume", "--set", "model.path=../b/m", cwd=place / "a"),
             "holds a study whose fedit:1 has another config", "model.path")
    (place / "s/low/arm.toml").write_text((place / "s/low/arm.toml").read_text().replace("lr = 0.001", "lr = 0.1"))
    one_line(started("study", "two.toml", "--out", "../s", "--resume", cwd=place / "a"), "low/arm.toml is not the config")
    (place / "s/low/arm.toml").unlink()
    one_line(started("study", "two.toml", "--out", "../s", "--resume", cwd=place / "a"), "low/arm.toml is missing")


@pytest.mark.parametrize("left", [[], ["base.toml"], ["base.toml", "fedit/arm.toml"], ["base.toml", "fedit/arm.toml", "low/arm.toml"]])
def test_a_study_that_was_killed_while_it_was_created_begins_again(study, left):
    """Leaves the first files that creating a study writes, and half of the next one."""
    place = study
    order = ["base.toml", "fedit/arm.toml", "low/arm.toml", "study.json"]
    study_done("study", "two.toml", "--out", "../whole", "--only", "fedit:1", cwd=place / "a")
    for name in left:
        (place / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place / "whole" / name, place / "s" / name)
    half = place / "s" / f"{order[len(left)]}.part-12-3"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_text("half")
    study_done("study", "two.toml", "--out", "../s", "--only", "fedit:1", cwd=place / "a")
    assert not half.exists() and len(lines(place / "s/fedit/seed-1/rounds.jsonl")) == 1
