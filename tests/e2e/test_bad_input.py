"""Whatever is wrong with a user's input ends in one line that says what, where and what was allowed, and exit code 1."""

import json
import os

import pytest

from tiny import CONFIG, evenkeel, model, settings, tiny_model  # noqa: F401


def refused(*arguments, says, saying_not=()):
    done = evenkeel(*arguments)
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == ""
    text = [line for line in done.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert len(text) == 1 and done.stderr.rstrip().endswith(text[0]), done.stderr
    for word in says:
        assert str(word) in text[0], text[0]
    for word in saying_not:
        assert word not in text[0], text[0]
    return text[0]


@pytest.fixture
def train(tiny_model, tmp_path):  # noqa: F811
    """Runs the tiny config with changes; every folder it made without being asked to holds no run afterwards."""
    out = tmp_path / "run"

    def check(*more, says, config=CONFIG, out=out, **changes):
        words = settings(**{"model__path": tiny_model, **changes})
        line = refused("train", config, "--out", out, *words, *more, says=says)
        assert not (out / "manifest.json").exists()
        return line
    return check


def config_with(tmp_path, text):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    return file


# --- the configuration ---

def test_bad_toml(train, tmp_path):
    train(config=config_with(tmp_path, "[train\nrounds = 3\n"), says=["[config]", "bad.toml", "line 1"])
    train(config=config_with(tmp_path, "rounds = = 3\n"), says=["[config]", "bad.toml"])


def test_a_config_that_is_not_there(train, tmp_path):
    train(config=tmp_path / "none.toml", says=["none.toml"])


def test_an_unknown_key(train, tmp_path):
    train(config=config_with(tmp_path, "[train]\nrouns = 3\n"), says=["train.rouns", "rounds", "local_epochs"])
    train("--set", "evaluate.budget=[1.0]", says=["evaluate.budget", "budgets"])
    train("--set", "method.ub-smoe.phi_momentm=0.5", says=["method.ub-smoe.phi_momentm", "phi_momentum"])


def test_a_value_of_the_wrong_type_or_out_of_range(train):
    train(says=["train.rounds", "whole number"], train__rounds='"ten"')
    train(says=["train.rounds", "0", "1 or more"], train__rounds=0)
    train(says=["train.optimizer.lr"], train__optimizer__lr=-1.0)
    train(says=["model.dtype", "int4", "bfloat16"], model__dtype='"int4"')
    train("--set", "seed", says=["seed"])


def test_an_unknown_method_or_task(train):
    train(says=["fedavg", "fedit", "ub-smoe"], method__name='"fedavg"')
    train(says=["arc_x", "arc_c"], evaluate__tasks='["arc_x"]')


def test_budgets_that_do_not_match_the_client_count(train):
    train(says=["clients.budgets", "5", "clients.count", "4"], clients__count=4)


def test_a_budget_that_leaves_no_expert(train):
    train(says=["clients.budgets[1]", "0.1", "0.125"], clients__budgets="[1.0, 0.1, 1.0, 1.0, 1.0]")
    train(says=["evaluate.budgets", "0.01"], evaluate__budgets="[1.0, 0.01]")


def test_ranks_the_method_cannot_give(train):
    train(says=["clients.ranks", "3, 2, 3", "ub-smoe", "equal ranks"], clients__ranks="[3, 2, 3, 3, 3]")
    train(says=["clients.ranks", "4", "lora.rank"], clients__ranks="[4, 3, 3, 3, 3]")


def test_an_encoder_that_is_not_there(train, tmp_path):
    train(says=[tmp_path / "nowhere", "not a folder"], evaluate__bert_score__encoder=f'"{tmp_path}/nowhere"')


def test_a_target_the_model_lacks(train):
    train(says=["w1"], lora__targets='["q_proj", "w1"]')


def test_a_cutoff_beyond_the_models_positions(train):
    train(says=["data.cutoff", "4096", "1024"], data__cutoff=4096)


def test_an_unknown_device(train):
    train("--device", "tpu", says=["--device", "tpu", "cpu"])


# --- clients and rows ---

def test_more_clients_than_rows(train):
    train(says=["6", "5"], data__limit=5, clients__count=6, clients__budgets="[]")


def test_an_empty_shard(train):
    train(says=["client"], data__limit=5, clients__count=5,
          data__partition='{ kind = "dirichlet", alpha = 0.001, scheme = "group" }')


def commonsense(tmp_path, text):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "commonsense_15k.json").write_text(text)
    return dict(data__task='"commonsense"', data__path=f'"{folder}"')


ROW = {"instruction": "Please answer the following question with true or false, question: is water wet?\n\n"
                      "Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}


@pytest.mark.parametrize("text, says", [
    (json.dumps([ROW, ROW])[:-20], ["[data]", "commonsense_15k.json"]),
    (json.dumps([ROW, {**ROW, "output": 3}]), ["commonsense_15k.json", "output"]),
    (json.dumps([ROW, {key: ROW[key] for key in ("instruction", "input")}]), ["commonsense_15k.json", "output"]),
    (json.dumps({"rows": [ROW]}), ["commonsense_15k.json"]),
    (json.dumps([ROW, "row"]), ["commonsense_15k.json"]),
    ("[]", ["commonsense_15k.json"]),
])
def test_a_broken_json_row(train, tmp_path, text, says):
    train(says=says, **commonsense(tmp_path, text))


def test_a_data_folder_that_is_not_there(train, tmp_path):
    train(says=[tmp_path / "nowhere"], data__task='"commonsense"', data__path=f'"{tmp_path}/nowhere"')


# --- the model ---

def test_a_model_that_is_not_there(train, tmp_path):
    train(says=[tmp_path / "nowhere"], model__path=tmp_path / "nowhere")


def test_a_missing_tokenizer(train, model):  # noqa: F811
    (model / "tokenizer.json").unlink()
    train(says=["[data]", "tokenizer.json"], model__path=model)


def test_a_broken_tokenizer(train, model):  # noqa: F811
    (model / "tokenizer.json").write_text("{")
    train(says=["[data]", "tokenizer.json"], model__path=model)


def edit(file, **changes):
    content = json.loads(file.read_text())
    content.update(changes)
    file.write_text(json.dumps(content))


def test_a_checkpoint_of_another_family(train, model):  # noqa: F811
    edit(model / "config.json", model_type="llama")
    train(says=["[checkpoint]", "llama", "olmoe"], model__path=model)


def test_a_checkpoint_of_another_shape(train, model):  # noqa: F811
    edit(model / "config.json", intermediate_size=20)
    train(says=["[checkpoint]", "20"], model__path=model)


def test_a_truncated_checkpoint(train, model):  # noqa: F811
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:len(weights) // 2])
    train(says=["[checkpoint]", "model.safetensors"], model__path=model)


# --- the output folder ---

def test_an_output_folder_that_exists(train, tmp_path):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "letter.txt").write_text("mine")
    train(out=out, says=["[io]", out])
    assert (out / "letter.txt").read_text() == "mine" and len(list(out.iterdir())) == 1


def test_an_output_path_that_is_a_file(train, tmp_path):
    out = tmp_path / "file"
    out.write_text("mine")
    line = refused("train", CONFIG, "--out", out, says=["[io]", out])
    assert out.read_text() == "mine" and line


def test_an_output_folder_that_is_not_writable(train, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o500)
    # Root may write into any folder on a disk; nobody may make one in /proc.
    out = "/proc/evenkeel" if os.geteuid() == 0 else closed / "run"
    refused("train", CONFIG, "--out", out, *settings(model__path=closed), says=["[io]", out])
    closed.chmod(0o700)


def test_a_run_is_not_begun_over_another(train, tiny_model, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    out.mkdir()
    (out / "manifest.json").write_text("{}")
    refused("train", CONFIG, "--out", out, *settings(model__path=tiny_model), says=["[io]", out, "--resume"])


# --- the command line ---

def test_an_alignment_without_a_run_or_without_pseudo_gradients(tiny_model, tmp_path):  # noqa: F811
    refused("pg-alignment", "--run", tmp_path, says=[tmp_path])
    refused("pg-alignment", "--run", tmp_path, "--limit", "0", says=["--limit is 0", "1 or more"])
    refused("pg-alignment", "--run", tmp_path, "--pg-align-mode", "all", says=["--pg-align-mode", "all", "kmax", "dense"])
    done = evenkeel("train", CONFIG, "--out", tmp_path / "run", *settings(model__path=tiny_model, method__name='"fedit"'))
    assert done.returncode == 0, done.stderr
    refused("pg-alignment", "--run", tmp_path / "run", says=["fedit", "no pseudo-gradients"])


def test_an_unknown_flag_or_command():
    for words in (["train"], ["train", CONFIG, "--round", "3"], ["trian", CONFIG], []):
        done = evenkeel(*words)
        assert done.returncode == 1 and done.stderr.strip()
