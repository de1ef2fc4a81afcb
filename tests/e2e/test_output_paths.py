"""Checks that a rejected command creates and changes no file and no folder, its output included."""

import json
import os
import pathlib
import re
import shutil

import pytest

from hostile import content, refused
from tiny import CONFIG, ROOT, evenkeel, lines, one_line, sealed, settings, succeed

ROWS = [{"prompt": f"Name thing {i}.", "completion": "oak" if i % 2 else "tin"} for i in range(3)]
OLD = '{"old": 1}\n'


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def place(tmp_path):
    """Returns a folder with rows.jsonl and old.jsonl, the output of an earlier command that a new output would replace."""
    write(tmp_path / "rows.jsonl", ROWS)
    (tmp_path / "old.jsonl").write_text(OLD)
    return tmp_path


def evaluation(place, model, *more, data="rows.jsonl"):
    return ["evaluate", "--model", model, "--tasks", "files", "--data", place / data, "--score", "nll", *more]


# --- evaluate: an existing output file is kept until there are answers ---

@pytest.mark.parametrize("flag", ["--predictions", "--journal"])
@pytest.mark.parametrize("more, says", [
    (["--adapter", "/nowhere"], ["/nowhere"]),
    (["--top-k", "999"], ["--top-k is 999"]),
    (["--budget", "0.01"], ["--budget"]),
    (["--dtype", "int9"], ["--dtype"]),
    (["--chat-template", "/nowhere.jinja", "--template", "chat"], ["/nowhere.jinja"]),
    (["--bert-encoder", "/nowhere"], ["/nowhere"]),
    (["--template", "chat", "--date", "yesterday"], ["--date"]),
    (["--limit", "-1"], ["--limit"]),
])
def test_a_rejected_evaluation_does_not_change_an_existing_output_file(flag, more, says, place, tiny_model):
    old = place / "old.jsonl"
    old.write_text("" if flag == "--journal" else OLD)  # an empty file may become a journal
    refused(*evaluation(place, tiny_model, flag, old, *more), says=says, untouched=place)
    old.unlink()
    refused(*evaluation(place, tiny_model, flag, old, *more), says=says, untouched=place)


@pytest.mark.parametrize("rows, says", [
    ([ROWS[0], {"prompt": "x"}], ["bad.jsonl:2", "completion is missing"]),
    ([{"prompt": "Name a tree. " * 2000, "completion": "oak"}], ["positions"]),
])
def test_invalid_rows_do_not_change_an_existing_output_file(rows, says, place, tiny_model):
    write(place / "bad.jsonl", rows)
    words = ["evaluate", "--model", tiny_model, "--tasks", "builtin:facts,files", "--data", place / "bad.jsonl", "--limit", 1, "--strict",
             "--predictions", place / "old.jsonl"]
    refused(*words, says=says, untouched=place)


def test_a_rejected_run_does_not_change_an_existing_output_file(small_run, place):
    words = ["evaluate", "--run", small_run, "--predictions", place / "old.jsonl"]
    for more, says in ([["--budget", "0.01"], ["budget"]], [["--tasks", "files", "--data", place / "missing.jsonl"], ["missing.jsonl"]],
                       [["--bert-encoder", "/nowhere"], ["/nowhere"]], [["--tasks", "nothing"], ["nothing"]]):
        refused(*words, *more, says=says, untouched=place)
    shutil.copytree(small_run, place / "damaged")
    (next((place / "damaged/checkpoint").glob("round-*")) / "state.safetensors").write_bytes(b"damaged")
    refused("evaluate", "--run", place / "damaged", "--predictions", place / "old.jsonl", says=["checkpoint"], untouched=place)


def test_an_existing_output_file_is_replaced_once_there_are_answers(place, tiny_model):
    succeed(*evaluation(place, tiny_model, "--predictions", place / "old.jsonl"))
    assert [line["row"] for line in lines(place / "old.jsonl")] == [0, 1, 2]


@pytest.mark.parametrize("device", ["/dev/null", "/dev/stderr"])
def test_predictions_may_go_to_a_device(device, place, tiny_model):
    done = succeed(*evaluation(place, tiny_model, "--predictions", device, "--json"), stdin=None)
    assert ('"nll"' in done.stderr) == (device == "/dev/stderr")


# --- an output may not be one of the inputs, also under another name ---

def linked(kind, target, link):
    {"same": lambda: None, "symbolic": lambda: link.symlink_to(target), "hard": lambda: os.link(target, link)}[kind]()
    return target if kind == "same" else link


@pytest.mark.parametrize("kind", ["same", "symbolic", "hard"])
@pytest.mark.parametrize("flag", ["--predictions", "--journal"])
@pytest.mark.parametrize("what", ["rows.jsonl", "model/config.json", "model/tokenizer.json", "model/model.safetensors"])
def test_an_evaluation_does_not_overwrite_its_inputs(what, flag, kind, place, model):
    file = linked(kind, place / what, place / "other")
    line = refused(*evaluation(place, model, flag, file), says=[flag, file], untouched=place)
    assert "reads or keeps" in line or "no journal" in line


def test_an_evaluation_does_not_overwrite_its_template_or_adapter(small_run, place, tiny_model):
    (place / "own.jinja").write_text("{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}")
    chat = ["--template", "chat", "--chat-template", place / "own.jinja"]
    refused(*evaluation(place, tiny_model, *chat, "--predictions", place / "own.jinja"), says=["own.jinja", "reads or keeps"], untouched=place)
    shutil.copytree(small_run / "adapter", place / "adapter")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        refused(*evaluation(place, tiny_model, "--adapter", place / "adapter", "--predictions", place / "adapter" / name),
                says=[name, "reads or keeps"], untouched=place)


@pytest.mark.parametrize("what", ["config.toml", "manifest.json", "rounds.jsonl", "evaluations.jsonl", "log.txt", "adapter/adapter_config.json",
                                  "checkpoint/commit.json"])
def test_no_record_of_a_run_is_overwritten(what, small_run, place):
    shutil.copytree(small_run, place / "run")
    file = place / "run" / what
    refused("evaluate", "--run", place / "run", "--predictions", file, says=["--predictions", what, "reads or keeps"], untouched=place)
    refused("evaluate", "--run", place / "run", "--journal", file, says=[what], untouched=place)
    refused("report", place / "run", "--html", file, says=["--html", what, "reads or keeps"], untouched=place)
    refused("score", "--run", place / "run", "--input", place / "rows.jsonl", "--logits", file, says=["--logits", what], untouched=place)


@pytest.mark.parametrize("flag", ["--html", "--predictions"])
def test_an_output_that_is_a_link_is_written_to_where_it_leads(flag, small_run, place):
    (place / "elsewhere").mkdir()
    for target in (place / "elsewhere/new", place / "old.jsonl"):
        link = place / f"link-{target.name}"
        link.symlink_to(target)
        succeed(*(["report", small_run] if flag == "--html" else ["evaluate", "--run", small_run]), flag, link)
        assert link.is_symlink() and target.stat().st_size > 100


RUN_FILES = re.findall(r'"([^"]+)"', (ROOT / "src/fed/store/run_files.h").read_text().split("kRunFiles =")[1].split(");")[0])
RUN_FOLDERS = ["items", "best", "checkpoint", "adapter", "tensorboard", "federation"]


def outputs(folder, file, rows):
    """Returns the commands that write to a file that they are given, and the flag that names it."""
    return [(["evaluate", "--run", folder, "--predictions", file], "--predictions"), (["evaluate", "--run", folder, "--journal", file], "--journal"),
            (["report", folder, "--html", file], "--html"), (["score", "--run", folder, "--input", rows, "--logits", file], "--logits")]


@pytest.mark.parametrize("name", RUN_FILES)
def test_the_place_of_a_file_of_a_run_is_no_place_of_an_output(name, small_run, place):
    """Also if the file is not there yet, if it is reached by a link, and if the command reads another run or a model."""
    run = place / "run"
    shutil.copytree(small_run, run)
    (run / name).mkdir(exist_ok=True) if name in RUN_FOLDERS else None
    (place / "link").symlink_to(run)
    for file in (run / name / "round-1.jsonl", place / "link" / name / "new") if name in RUN_FOLDERS else (run / name, place / "link" / name):
        words = outputs(run, file, place / "rows.jsonl")
        for command, flag in [words[0], words[2], (evaluation(place, "/nowhere", "--predictions", file), "--predictions")]:
            refused(*command, says=[flag, file, f"which the run in {run} reads or keeps"], untouched=place)


def test_a_hard_link_to_a_file_of_a_run_is_not_overwritten(place, model):
    run = place / "run"
    words = settings(model__path=model, method__name="fedit", evaluate__tasks="['builtin:facts']", evaluate__limit=1, data__limit=20,
                     evaluate__budgets="[1.0]", train__rounds=1, evaluate__items="true", report__tensorboard="true")
    succeed("train", CONFIG, "--out", run, *words)
    for name in ("items/round-1.jsonl", "tensorboard/events.out.tfevents.evenkeel", "superseded.jsonl", "federation/members.json"):
        file, link = run / name, place / "link"
        file.parent.mkdir(exist_ok=True)
        if not file.exists():
            file.write_text(OLD)
        os.link(file, link)
        for command, flag in outputs(run, link, place / "rows.jsonl"):
            line = refused(*command, says=[flag, "link"], untouched=place)
            assert "reads or keeps" in line or "no journal" in line
        link.unlink()


def test_a_folder_with_names_of_a_run_may_hold_outputs(place, tiny_model):
    """Without a manifest, the folder holds no run."""
    (place / "items").mkdir()
    for file in (place / "items/answers.jsonl", place / "log.txt"):
        succeed(*evaluation(place, tiny_model, "--predictions", file))
        assert len(lines(file)) == 3


FOREIGN = ["{}", "[]", "{", "\x00", '{"name": "web", "icons": [], "version": "1.0"}', '{"version": 3, "files": ["a.js"], "libraries": {}}',
           '{"format": 2, "config": "x"}', json.dumps({"files": ["x" * 100] * 1000})]


@pytest.mark.parametrize("text", FOREIGN)
def test_a_manifest_of_another_program_is_no_run(text, place):
    web = place / "web"
    (web / "items").mkdir(parents=True)
    for name in ("manifest.json", "study.json"):
        (web / name).write_text(text)
    for name in ("log.txt", "config.toml", "best", "adapter", "items/a.jsonl", "study.toml"):
        succeed("keygen", web / name)
    before = content(place)
    for command in ("status", "report"):
        refused(command, web, says=[web, "holds no run: manifest.json is not that of a run"], untouched=place)
    refused("train", CONFIG, "--out", web, says=[web, "not empty"], untouched=place)
    refused("train", CONFIG, "--out", web, "--resume", says=[web, "holds no run"], untouched=place)
    assert content(place) == before


@pytest.mark.parametrize("text", ["{}", "{", "[]"])
def test_a_run_with_a_damaged_manifest_keeps_its_files(text, small_run, place):
    run = place / "run"
    shutil.copytree(small_run, run)
    (run / "manifest.json").write_text(text)
    refused("keygen", run / "evaluating.jsonl", says=[f"which the run in {run} reads or keeps"], untouched=place)


def writers(place, run, model, out):
    """Returns the commands that make a file or folder at `out`, by the flag that names it."""
    node = ["node", "--superlink", "127.0.0.1:1", "--insecure", "--key", place / "key.pem", "--model", model]
    serve = ["serve", CONFIG, *settings(model__path=model), "--open", "--insecure", "--listen", "127.0.0.1:0"]
    return [("FILE", ["keygen", out]), ("--out", ["export", "--run", run, "--out", out]),
            ("--out", ["init", ROOT / "configs/tiny/model.json", "--out", out]),
            ("--out", ["pretrain", ROOT / "configs/pretrain/tiny-olmoe.toml", "--out", out]),
            ("--out", ["train", CONFIG, *settings(model__path=model), "--out", out]), ("--out", [*serve, "--out", out]),
            ("--grid", [*serve[:-4], "--grid", out, "--out", place / "new"]), ("--out", [*study_without_a_model(place), out]),
            ("--memory", [*node, "--memory", out]), ("--adapters", [*node, "--adapters", out]),
            ("--socket", ["node", "--socket", out, "--model", model]), ("--out", ["demo", "--out", out]),
            ("--model", ["tokenize", "--train", "300", "--input", place / "rows.jsonl", "--model", out / "tokenizer.json"])]


@pytest.mark.parametrize("name", ["best", "items/new", "evaluating.jsonl", "link/checkpoint/a/b", "federation/"])
def test_no_command_makes_a_file_or_folder_where_a_run_keeps_its_own(name, small_run, place, tiny_model):
    run = place / "run"
    shutil.copytree(small_run, run)
    (place / "link").symlink_to(run)
    succeed("keygen", place / "key.pem")
    out = place / name if name.startswith("link") else f"{run}/{name}" if name.endswith("/") else run / name
    for flag, command in writers(place, run, tiny_model, out if not name.endswith("/") else pathlib.Path(out)):
        command = [out if word == pathlib.Path(out) else word for word in command]
        refused(*command, says=[flag, f"which the run in {run} reads or keeps: choose another path"], untouched=place)


def test_a_new_name_in_the_folder_of_a_run_may_be_an_output(small_run, place):
    run = place / "run"
    shutil.copytree(small_run, run)
    succeed("export", "--run", run, "--out", run / "exported")
    succeed("keygen", run / "key.pem")


@pytest.mark.parametrize("what", ["study.json", "study.toml", "base.toml", "b/seed-1/rounds.jsonl"])
def test_no_file_of_a_study_is_overwritten(what, small_run, place):
    folder = place / "study"
    runs = [{"arm": arm, "seed": 1, "folder": f"{arm}/seed-1", "state": "done", "config": "0" * 64, "seconds": 1.5} for arm in "ab"]
    for run in runs:
        shutil.copytree(small_run, folder / run["folder"])
    (folder / "study.json").write_text(sealed({
        "version": 1, "name": "two", "reference": "a", "endpoint": "accuracy", "seeds": [1], "arms": [{"name": arm, "set": [], "config": "0"} for arm in "ab"],
        "common": [], "free": [], "pinned": [], "runs": runs}) + "\n")
    for name in ("study.toml", "base.toml"):
        (folder / name).write_text("")
    refused("report", folder, "--html", folder / what, says=["--html", what, "reads or keeps"], untouched=place)
    refused("report", folder, "--html", linked("hard", folder / what, place / "other"), says=["other", "reads or keeps"], untouched=place)
    for file in (folder / what, folder / ".claims-1", folder / "a/seed-1/items/round-1.jsonl"):
        refused(*evaluation(place, "/nowhere", "--predictions", file), says=[file, "reads or keeps"] if file.parent.exists() else [file],
                untouched=place)


def test_the_model_and_training_rows_of_a_run_are_not_overwritten(place, model):
    words = settings(model__path=model, method__name="fedit", data__task="files", data__limit=0, data__partition__kind="iid",
                     data__files__train=f"['{place}/rows.jsonl']", evaluate__tasks="['builtin:facts']", evaluate__limit=1,
                     evaluate__budgets="[1.0]", train__rounds=1, clients__count=2, clients__budgets="[0.5, 1.0]", clients__participation="1.0")
    succeed("train", CONFIG, "--out", place / "run", *words)
    for file in (place / "rows.jsonl", model / "config.json"):
        refused("evaluate", "--run", place / "run", "--predictions", file, says=[file, "reads or keeps"], untouched=place)
        refused("report", place / "run", "--html", file, says=[file, "reads or keeps"], untouched=place)
    page = place / "run/report.html"  # a report page may be replaced
    succeed("report", place / "run", "--html", page)
    succeed("evaluate", "--run", place / "run", "--predictions", place / "run/answers.jsonl")
    succeed("evaluate", "--run", place / "run", "--predictions", place / "run/answers.jsonl")


def test_two_outputs_cannot_be_the_same_file(place, tiny_model):
    both = place / "both.jsonl"
    for one, other in ((both, both), (both, place / "." / "both.jsonl"), (both, linked("symbolic", both, place / "link"))):
        refused(*evaluation(place, tiny_model, "--predictions", one, "--journal", other), says=["--predictions and --journal"], untouched=place)


@pytest.mark.parametrize("text", [OLD, "notes\n", "{}", '{"round":1}\n', "\x00\x01"])
def test_a_file_that_is_not_a_journal_is_rejected_and_not_truncated(text, place, tiny_model):
    (place / "journal").write_text(text)
    refused(*evaluation(place, tiny_model, "--journal", place / "journal"), says=["journal", "no journal of answers"], untouched=place)


@pytest.mark.parametrize("torn", [0, 4, 60, -1])
def test_an_evaluation_continues_from_a_truncated_journal(torn, place, tiny_model):
    journal = place / "journal"
    words = evaluation(place, tiny_model, "--json", "--journal", journal)
    first = succeed(*words).stdout
    whole = journal.read_bytes()
    assert whole.startswith(b'{"key":"')
    journal.write_bytes(whole[:torn])
    again = succeed(*words).stdout
    assert json.loads(again)["nll"] == json.loads(first)["nll"]


@pytest.mark.parametrize("flag, command", [
    ("--predictions", ["evaluate"]), ("--journal", ["evaluate"]), ("--logits", ["score"]), ("--html", ["report"]), ("--client-profile", ["doctor"])])
def test_an_unwritable_output_path_is_the_first_error_reported(flag, command, place, small_run, tiny_model):
    """Every command below also has another error, which must not be reported."""
    words = {"evaluate": ["--model", tiny_model, "--tasks", "files", "--data", place / "rows.jsonl", "--adapter", "/later"],
             "score": ["--model", tiny_model, "--input", "/later"], "report": ["/later"], "doctor": ["--config", "/later"]}[command[0]]
    name = "p.toml" if command == ["doctor"] else "p"
    (place / "folder.toml").mkdir()
    (place / "file").write_text("")
    for file, says in ((place / "missing" / name, "is not a folder"), (place / "file" / name, "is not a folder"), (place / "folder.toml", "it is a folder")):
        assert "/later" not in refused(*command, *words, flag, file, says=[flag, file, says], untouched=place)
    if command != ["evaluate"] or flag == "--journal":
        os.mkfifo(place / "pipe.toml")
        refused(*command, *words, flag, place / "pipe.toml", says=[flag, "is no file"])


def test_a_client_profile_does_not_overwrite_the_config(place, tiny_model):
    shutil.copy(CONFIG, place / "own.toml")
    words = ["doctor", "--config", place / "own.toml", *settings(model__path=tiny_model), "--client-profile"]
    refused(*words, place / "own.toml", says=["own.toml", "reads or keeps"], untouched=place)
    refused(*words, linked("symbolic", place / "own.toml", place / "link.toml"), says=["link.toml", "reads or keeps"], untouched=place)


def test_logits_do_not_overwrite_the_texts(place, tiny_model):
    words = ["score", "--model", tiny_model, "--input", place / "rows.jsonl", "--logits"]
    for kind in ("same", "symbolic", "hard"):
        refused(*words, linked(kind, place / "rows.jsonl", place / kind), says=["--logits", "reads or keeps"], untouched=place)


# --- folders ---

def too_little_text(place):
    (place / "little.txt").write_text("hi\n")
    (place / "pretrain.toml").write_text(f'[model]\nconfig = "{ROOT}/configs/tiny/model.json"\n[data]\nfiles = ["{place}/little.txt"]\n')
    return ["pretrain", place / "pretrain.toml", "--out"]


def too_large_model(place):
    config = json.loads((ROOT / "configs/tiny/model.json").read_text()) | {"vocab_size": 1 << 28, "hidden_size": 3 << 20}
    (place / "large.json").write_text(json.dumps(config))
    return ["init", place / "large.json", "--out"]


def study_without_a_model(place):
    (place / "base.toml").write_text(CONFIG.read_text().replace('"models/tiny"', '"/nowhere"'))
    arms = "".join(f'[[study.arm]]\nname = "{name}"\nset = ["method.name={name}"]\n' for name in ("fedit", "ub-smoe"))
    (place / "study.toml").write_text(f'[study]\nbase = "base.toml"\nseeds = [1, 2]\nset = ["method.gate_norm=renorm_selected"]\n{arms}')
    return ["study", place / "study.toml", "--out"]


REFUSED = {
    "train, its model": lambda place, run: ["train", CONFIG, *settings(model__path="/nowhere"), "--out"],
    "train, its encoder": lambda place, run: ["train", CONFIG, *settings(model__path="assets/tiny-olmoe", evaluate__bert_score__encoder="'/nowhere'"),
                                              "--out"],
    "serve": lambda place, run: ["serve", CONFIG, *settings(model__path="/nowhere"), "--open", "--insecure", "--listen", "127.0.0.1:0", "--out"],
    "init": lambda place, run: too_large_model(place),
    "pretrain": lambda place, run: too_little_text(place),
    "study": lambda place, run: study_without_a_model(place),
    "export, a run": lambda place, run: ["export", "--run", place / "nothing", "--out"],
    "export, a format": lambda place, run: ["export", "--run", run, "--format", "gguf", "--base-model", "no name", "--out"],
    "tokenize": lambda place, run: ["tokenize", "--train", "300", "--input", place / "nothing", "--model"],
}


@pytest.mark.parametrize("command", REFUSED)
@pytest.mark.parametrize("depth", ["out", "a/b/out"])
def test_a_rejected_command_leaves_no_folder(command, depth, small_run, place):
    words = REFUSED[command](place, small_run)
    refused(*words, place / depth, says=[], untouched=place)
    (place / "a").mkdir(exist_ok=True)  # an existing folder is kept
    refused(*words, place / depth, says=[], untouched=place)


def test_an_invalid_demo_folder_is_rejected_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "out/demo.html").mkdir(parents=True)
    refused("demo", "--out", tmp_path / "file/below", says=["--out", "is not a folder"], untouched=tmp_path)
    refused("demo", "--out", tmp_path / "out", says=["demo.html", "it is a folder"], untouched=tmp_path)


def test_a_key_with_an_invalid_comment_is_not_created(tmp_path):
    refused("keygen", tmp_path / "a.pem", "--comment", "two\nlines", says=["name of a key"], untouched=tmp_path)
    assert content(tmp_path) == {}
    assert succeed("keygen", tmp_path / "a.pem", "--comment", "one").stdout.endswith(" one\n")


def test_an_invalid_tokenizer_path_is_rejected_before_training(tmp_path):
    (tmp_path / "text.txt").write_text("some words " * 50)
    (tmp_path / "file").write_text("")
    refused("tokenize", "--train", "300", "--input", tmp_path / "text.txt", "--model", tmp_path / "file/tokenizer.json", says=["file"],
            untouched=tmp_path)
    succeed("tokenize", "--train", "300", "--input", tmp_path / "text.txt", "--model", tmp_path / "new/one")
    assert pathlib.Path(tmp_path / "new/one/tokenizer.json").exists()
    one_line(evenkeel("tokenize", "--train", "300", "--input", tmp_path / "text.txt", "--model", tmp_path / "new/one"), "exists already")
    succeed("tokenize", "--train", "300", "--input", "-", "--model", tmp_path / "two", input="some words " * 50)
    assert (tmp_path / "two/tokenizer.json").read_bytes() == (tmp_path / "new/one/tokenizer.json").read_bytes()
