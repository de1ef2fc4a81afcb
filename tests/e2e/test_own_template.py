"""Tests a user's chat template for a model that has none: the run stores it, and every command that reads the run uses
it.
"""
import datetime
import json
import re
import shutil

import pytest

from hostile import refused
from tiny import ROOT, evenkeel, lines, succeed

TEMPLATE = """{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}{% if m.role == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"""
CONFIG = """name = "own"
threads = 1
[model]
path = "builtin:tiny-olmoe"
compute_dtype = "float32"
[data]
task = "files"
template = "chat"
chat_template = "own.jinja"
[data.files]
train = ["rows.jsonl", "./rows.jsonl"]
test = ["link.jsonl"]
[clients]
count = 2
[train]
rounds = 1
local_epochs = 1.0
batch_size = 2
accumulation = 1
[evaluate]
budgets = [1.0]
max_new_tokens = 3
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    rows = [{"messages": [{"role": "user", "content": f"Is {i} odd?"}, {"role": "assistant", "content": "yes" if i % 2 else "no"}]} for i in range(6)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "link.jsonl").symlink_to("rows.jsonl")
    (folder / "own.jinja").write_text(TEMPLATE)
    (folder / "run.toml").write_text(CONFIG)
    return folder


@pytest.fixture
def run(folder):
    """Returns the training of the folder's run."""
    return succeed("train", "run.toml", "--out", "run", cwd=folder)


def test_rows_are_read_once_and_training_on_a_test_file_is_reported(folder, run):
    assert f"6 rows of {folder}/rows.jsonl" in run.stderr and "12 rows" not in run.stderr
    assert f"rows.jsonl trains and tests (as {folder}/link.jsonl)" in run.stderr


def test_the_run_stores_a_copy_that_every_command_uses(folder, run):
    assert (folder / "run/chat_template.jinja").read_text() == TEMPLATE
    (folder / "own.jinja").unlink()
    succeed("evaluate", "--run", "run", "--predictions", "first.jsonl", cwd=folder)
    asked = json.loads(succeed("generate", "--run", "run", "--prompt", "hi", "--max-new-tokens", "1", "--json", cwd=folder).stdout)
    (folder / "ids.jsonl").write_text(json.dumps(asked["prompt_ids"]) + "\n")
    text = succeed("tokenize", "--model", ROOT / "assets/tiny-olmoe", "--decode", "--input", "ids.jsonl", cwd=folder).stdout
    assert text == "<user>hi<assistant>\n"
    succeed("export", "--run", "run", "--out", "adapter", cwd=folder)
    assert (folder / "adapter/chat_template.jinja").read_text() == TEMPLATE
    succeed("train", "run.toml", "--out", "run", "--resume", cwd=folder)


def test_resume_rejects_another_template_and_a_changed_copy(folder, run):
    shutil.copytree(folder / "run", folder / "other")
    (folder / "own.jinja").write_text(TEMPLATE + "!")
    done = evenkeel("train", "run.toml", "--out", "other", "--resume", cwd=folder)
    assert done.returncode == 1 and "data.chat_template" in done.stderr, done.stderr
    (folder / "own.jinja").write_text(TEMPLATE)
    (folder / "other/chat_template.jinja").write_text("!")
    done = evenkeel("evaluate", "--run", "other", cwd=folder)
    assert done.returncode == 1 and "chat_template.jinja is not the chat template that the run was begun with" in done.stderr, done.stderr


@pytest.mark.parametrize("source, says", [("{% if %}", ["bad.jinja", "line 1"]), (None, ["bad.jinja"])])
def test_an_invalid_template_ends_a_command_at_once(folder, source, says):
    bad = folder / "bad.jinja"
    bad.unlink(missing_ok=True)
    if source:
        bad.write_text(source)
    for command in (["train", "run.toml", "--out", "none", "--set", "data.chat_template=bad.jinja"],
                    ["evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", "rows.jsonl", "--template", "chat", "--chat-template", "bad.jinja"],
                    ["generate", "--model", "builtin:tiny-olmoe", "--prompt", "hi", "--template", "chat", "--chat-template", "bad.jinja"]):
        done = evenkeel(*command, cwd=folder)
        assert done.returncode == 1 and done.stderr.count("\n") <= 3 and all(word in done.stderr for word in says), done.stderr
    assert not (folder / "none").exists()


def test_rows_that_the_template_refuses_are_skipped_and_counted_if_configured(folder):
    (folder / "own.jinja").write_text("{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE)
    turns = [{"role": role, "content": "x"} for role in ("system", "user", "assistant")]
    with open(folder / "rows.jsonl", "a") as rows:
        rows.write(json.dumps({"messages": turns}) + "\n")
    asked = ["train", "run.toml", "--set", 'data.files.score="nll"']
    refused(*asked, "--out", "strict", says=["rows.jsonl:7", "no system"], cwd=folder)
    done = succeed(*asked, "--out", "run", "--set", "data.files.strict=false", cwd=folder)
    for name in ("rows", "link"):  # training and test
        assert re.search(rf"1 of 7 rows cannot be tokenised and are left out; the first: \S+{name}.jsonl:7: .*no system", done.stderr), done.stderr
    assert len(sum(json.loads((folder / "run/partition.json").read_text())["clients"], [])) == 6
    assert {one["rows"] for one in lines(folder / "run/evaluations.jsonl")} == {6}
    shown = succeed("tokenize", "--config", "run.toml", "--set", "data.files.strict=false", "--json", cwd=folder).stdout
    assert [json.loads(line)["left_out"] for line in shown.splitlines()] == [False] * 6 + [True]
    alone = evenkeel("evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", "rows.jsonl", "--score", "nll", "--json",
                     "--template", "chat", "--chat-template", "own.jinja", cwd=folder)
    assert alone.returncode == 1 and json.loads(alone.stdout)["rows"] == 6
    assert "1 of 7 rows cannot be tokenised and are left out" in alone.stderr.splitlines()[-1]


def test_the_remedies_in_error_messages_work(folder):
    asked = ["evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", "rows.jsonl", "--score", "exact", "--max-new-tokens", "2", "--template", "chat"]
    assert "--chat-template" in evenkeel(*asked, cwd=folder).stderr
    succeed(*asked, "--chat-template", "own.jinja", "--predictions", "p.jsonl", cwd=folder)
    assert len(lines(folder / "p.jsonl")) == 6
    for flags in (["--chat-template", "own.jinja"], ["--chat-template", "own.jinja", "--template", "plain"]):
        assert "goes with --template chat" in evenkeel(*asked[:-2], *flags, cwd=folder).stderr
    assert "chat_template" in evenkeel("train", "run.toml", "--set", "data.template=plain", cwd=folder).stderr


def test_a_run_keeps_the_date_of_its_template(folder):
    (folder / "dated.jinja").write_text("{{ strftime_now('%d %b %Y') }}" + TEMPLATE)
    asked = ["run.toml", "--out", "dated", "--set", "data.chat_template=dated.jinja", "--set", 'data.date="today"']
    assert "strftime_now needs a date: give one by the key data.date" in evenkeel("train", *asked[:-2], cwd=folder).stderr
    days = [datetime.date.today()]
    succeed("train", *asked, cwd=folder)
    days.append(datetime.date.today())
    kept = next(day for day in days if f'date = "{day}"' in (folder / "dated/config.toml").read_text())
    succeed("train", *asked, "--resume", cwd=folder)
    other = evenkeel("train", *asked[:-1], 'data.date="1999-01-02"', "--resume", cwd=folder)
    assert other.returncode == 1 and "data.date" in other.stderr, other.stderr
    written = []
    for flags in ([], ["--date", "1999-01-02"]):
        done = succeed("generate", "--run", "dated", "--prompt", "hi", "--max-new-tokens", "1", "--json", *flags, cwd=folder)
        (folder / "ids.jsonl").write_text(json.dumps(json.loads(done.stdout)["prompt_ids"]) + "\n")
        written.append(succeed("tokenize", "--model", ROOT / "assets/tiny-olmoe", "--decode", "--input", "ids.jsonl", cwd=folder).stdout)
    assert written == [f"{kept:%d %b %Y}<user>hi<assistant>\n", "02 Jan 1999<user>hi<assistant>\n"]
    succeed("evaluate", "--run", "dated", cwd=folder)
    model = ["evaluate", "--model", "builtin:tiny-olmoe", "--tasks", "files", "--data", "rows.jsonl", "--score", "exact", "--max-new-tokens", "2"]
    succeed(*model, "--template", "chat", "--chat-template", "dated.jinja", "--date", "2025-03-01", cwd=folder)
    assert "--date goes with --template chat" in evenkeel(*model, "--date", "2025-03-01", cwd=folder).stderr


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused_with_every_flag(model, tmp_path):
    """Also where a template or a date is read before the first text."""
    file, rows = model / "tokenizer.json", json.loads((model / "config.json").read_text())["vocab_size"]
    content = json.loads(file.read_text())
    used = max(list(content["model"]["vocab"].values()) + [token["id"] for token in content["added_tokens"]]) + 1
    content["added_tokens"] += [{**content["added_tokens"][-1], "id": id, "content": f"<|more {id}|>"} for id in range(used, rows + 1)]
    file.write_text(json.dumps(content))
    (tmp_path / "own.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Name a thing.", "completion": "oak"}\n')
    template, date = ["--chat-template", tmp_path / "own.jinja"], ["--date", "2024-01-02"]
    chat = [["--template", "chat", *words] for words in ([], template, date, template + date)]
    for words in [[], *chat]:
        refused("generate", "--model", model, "--prompt", "hi", *words, says=[f"the tokenizer has {rows + 1} ids", f"embedding has {rows}"])
        refused("evaluate", "--model", model, "--tasks", "files", "--data", tmp_path / "rows.jsonl", "--score", "nll", *words,
                says=[f"the tokenizer has {rows + 1} ids", f"embedding has {rows}"])
