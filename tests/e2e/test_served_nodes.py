"""Tests the chat template that a server sends to its nodes, and rounds in which a node's score is missing."""

import json
import shutil

import pytest

from test_federation import Processes, free_port, keygen, node_arguments, wait_for, wait_until
from tiny import lines, settings, succeed, tiny_model, without_seconds  # noqa: F401

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def write(file, count, start=0):
    rows = [{"messages": [{"role": "user", "content": f"Is {i} odd?"}, {"role": "assistant", "content": "yes" if i % 2 else "no"}]}
            for i in range(start, start + count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def config_of(folder, model, more=""):
    for i in range(2):
        write(folder / f"site-{i}.jsonl", 8, 10 * i)
        write(folder / f"site-{i}-test.jsonl", 3, 100 * i + 50)
    clients = "".join(f'[[clients.client]]\nname = "site-{i}"\ndata = ["{folder}/site-{i}.jsonl"]\ntest = ["{folder}/site-{i}-test.jsonl"]\n'
                      f"budget = {0.5 + i / 2}\n" for i in range(2))
    (folder / "run.toml").write_text(f"""name = "served"
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[data]
task = "files"
template = "chat"
{more}
[data.files]
score = "exact"
[method]
name = "fedit"
[train]
rounds = 1
batch_size = 2
accumulation = 1
[evaluate]
budgets = [1.0]
max_new_tokens = 3
per_client = true
""" + clients)
    return folder / "run.toml"


def served(processes, folder, config, model_of, *more_of_serve, make_keys=True):
    """Runs a server with its nodes. Returns the server and its log."""
    keys = keygen(folder, 2) if make_keys else [folder / f"site-{i}.pem" for i in range(2)]
    log, address = folder / "serve.log", f"127.0.0.1:{free_port()}"
    server = processes.start("serve", config, "--out", folder / "run", "--listen", address, "--allow", folder / "keys.txt", "--insecure",
                             *more_of_serve, log=log)
    for i, key in enumerate(keys):
        rows = ["--data", folder / f"site-{i}.jsonl", "--test", folder / f"site-{i}-test.jsonl"]
        processes.start(*node_arguments(key, model_of(i), address, *rows), log=folder / f"site-{i}.log")
    return server, log


def same_result(local, run):
    adapter = "adapter/adapter_model.safetensors"
    assert (local / adapter).read_bytes() == (run / adapter).read_bytes()
    assert without_seconds(lines(local / "rounds.jsonl")) == without_seconds(lines(run / "rounds.jsonl"))


def test_nodes_use_the_servers_chat_template_without_having_its_file(tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path}/own.jinja"')
    succeed("train", config, "--out", tmp_path / "local")
    with Processes() as processes:
        server, log = served(processes, tmp_path, config, lambda i: tiny_model)
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-0.log").read_text()
    same_result(tmp_path / "local", tmp_path / "run")
    (copy,) = (tmp_path / "site-0.pem.memory").glob("*-chat_template.jinja")
    assert copy.read_text() == TEMPLATE


def test_the_template_of_the_servers_model_is_used(tiny_model, tmp_path):  # noqa: F811
    """The copy of the model on node 1 has another template than the server's."""
    models = [tmp_path / "model-0", tmp_path / "model-1"]
    for i, model in enumerate(models):
        shutil.copytree(tiny_model, model)
        (model / "chat_template.jinja").write_text(TEMPLATE if i == 0 else TEMPLATE.replace("<{{", "[{{"))
    config = config_of(tmp_path, models[0])
    succeed("train", config, "--out", tmp_path / "local")
    with Processes() as processes:
        server, log = served(processes, tmp_path, config, lambda i: models[i])
        assert wait_for(server, log) == 0, log.read_text() + (tmp_path / "site-1.log").read_text()
    same_result(tmp_path / "local", tmp_path / "run")


def test_a_node_whose_tokenizer_differs_cannot_join(tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    other = tmp_path / "other"
    shutil.copytree(tiny_model, other)
    (other / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|padding|>"}))
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path}/own.jinja"')
    with Processes() as processes:
        served(processes, tmp_path, config, lambda i: other)
        wait_until(lambda: "names other special tokens" in (tmp_path / "serve.log").read_text(), tmp_path / "serve.log")


def test_a_score_that_one_node_cannot_give_is_computed_without_that_node(tiny_model, tmp_path):  # noqa: F811
    """The test file of client 1 loses rows after its node has joined."""
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path}/own.jinja"')
    with Processes() as processes:
        server, log = served(processes, tmp_path, config, lambda i: tiny_model)
        wait_until(lambda: log.read_text().count(" is client ") == 2 or server.poll() is not None, log)
        write(tmp_path / "site-1-test.jsonl", 1)
        assert wait_for(server, log) == 0, log.read_text()
    scores = lines(tmp_path / "run/evaluations.jsonl")
    of_all = [one for one in scores if "client" not in one]
    assert [one["missing_clients"] for one in of_all] == [[1]] and of_all[0]["rows"] == 3
    assert [one["client"] for one in scores if one.get("rows_of") == "own"] == [0]
    missing = lines(tmp_path / "run/missing_scores.jsonl")
    assert {(one["client"], one["client_name"]) for one in missing} == {(1, "site-1")}
    assert {one["rows_of"] for one in missing} == {"own", "all"}
    assert "no score of files at budget 1" in log.read_text() and "client 1 (site-1)" in log.read_text()
    assert "rounds" not in missing[0] and missing[0]["round"] == 1


def test_a_node_without_room_for_the_final_adapter_ends_with_an_error(tiny_model, tmp_path):  # noqa: F811
    """The node may write no file of more than 16 KiB."""
    keys, address = keygen(tmp_path, 2), f"127.0.0.1:{free_port()}"
    few = ["sh", "-c", "trap '' XFSZ; ulimit -f 32; exec \"$@\"", "sh"]
    with Processes() as processes:
        server = processes.start("serve", "configs/tiny/train.toml", *settings(model__path=f'"{tiny_model}"', clients__count=2,
                                 clients__budgets="[0.5, 1.0]", train__rounds=1, data__limit=20, evaluate__limit=1, method__name='"fedit"'),
                                 "--listen", address, "--allow", tmp_path / "keys.txt", "--insecure", "--out", tmp_path / "run",
                                 log=tmp_path / "serve.log")
        logs = [tmp_path / f"site-{i}.log" for i in range(2)]
        nodes = [processes.start(*node_arguments(key, tiny_model, address, "--adapters", tmp_path / f"adapters-{i}"), log=logs[i],
                                 inside=few if i == 0 else []) for i, key in enumerate(keys)]
        assert wait_for(server, tmp_path / "serve.log") == 0
        assert [wait_for(node, log) for node, log in zip(nodes, logs)] == [1, 0], logs[0].read_text()
    assert "evenkeel: [io]" in logs[0].read_text() and "adapter" in logs[0].read_text().splitlines()[-1]
    assert not (tmp_path / "adapters-0").exists() and (tmp_path / "adapters-1").exists()
    assert "has not taken the final adapter" in (tmp_path / "serve.log").read_text()


@pytest.mark.parametrize("name", ["same", "link", "copy"])
def test_a_client_that_trains_on_anothers_test_file_is_reported(name, tiny_model, tmp_path):  # noqa: F811
    (tmp_path / "own.jinja").write_text(TEMPLATE)
    config = config_of(tmp_path, tiny_model, f'chat_template = "{tmp_path}/own.jinja"')
    one, other = tmp_path / "site-0.jsonl", tmp_path / "site-1-test.jsonl"
    if name == "copy":
        shutil.copy(other, one)
    elif name == "link":
        one.unlink()
        one.symlink_to(other)
    else:
        config.write_text(config.read_text().replace(str(one), str(other)))
    done = succeed("train", config, "--out", tmp_path / "out")
    assert "client 1 (site-1) is tested with it" in done.stderr and done.stderr.count("learnt by heart") == 1, done.stderr
    asked = ["evaluate", "--run", tmp_path / "out", "--tasks", "files", "--data"]
    fresh = write(tmp_path / "fresh.jsonl", 2, 900)
    assert "learnt by heart" not in succeed(*asked, fresh, "--score", "exact").stderr
    shutil.copy(tmp_path / "site-1.jsonl", tmp_path / "moved.jsonl")
    said = succeed(*asked, tmp_path / "moved.jsonl", "--score", "exact").stderr
    assert "the run was trained on" in said and "moved.jsonl" in said and "site-1.jsonl" in said


def test_training_on_a_published_test_file_is_reported(tiny_model, tmp_path):  # noqa: F811
    row = {"instruction": "Is {} even? Answer format: true/false", "input": "", "output": "the correct answer is true", "answer": "true"}
    (tmp_path / "data/boolq").mkdir(parents=True)
    rows = [{**row, "instruction": row["instruction"].format(2 * i)} for i in range(8)]
    (tmp_path / "data/boolq/test.json").write_text(json.dumps(rows))
    (tmp_path / "mine.json").write_text(json.dumps(rows))
    words = settings(model__path=tiny_model, method__name="fedit", data__task="files", data__path=tmp_path / "data", data__limit=0,
                     data__partition__kind="iid", data__files__train=f"['{tmp_path}/mine.json']", data__files__held_out=0,
                     evaluate__tasks="['boolq']", evaluate__limit=1, train__rounds=1, clients__count=2, clients__budgets="[0.5, 1.0]",
                     clients__participation="1.0")
    done = succeed("train", "configs/tiny/train.toml", "--out", tmp_path / "out", *words)
    assert "mine.json trains, and boolq is tested with it (as" in done.stderr, done.stderr
    assert "the run was trained on" in succeed("evaluate", "--run", tmp_path / "out").stderr
