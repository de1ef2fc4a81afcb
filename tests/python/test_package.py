"""Tests evenkeel_moe: training with callbacks, run folders as data frames, the other commands, errors, and types."""

import copy
import json
import os
import pathlib
import pickle
import re
import shutil
import stat
import subprocess
import sys
import tomllib

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import evenkeel_moe as ek
from evenkeel_moe import _program, _toml, _torch, commands
from package import CONFIG, ROOT, python, settings, train
from tiny import evenkeel, lines, without_seconds


@pytest.fixture(scope="module")
def run_and_calls(tiny_model, tmp_path_factory):
    """Returns a run of two rounds, and the objects that its callbacks received."""
    received = {"rounds": [], "evaluations": [], "events": []}
    run = train(tiny_model, tmp_path_factory.mktemp("python") / "run", on_round=received["rounds"].append,
                on_evaluation=received["evaluations"].append, on_event=received["events"].append)
    return run, received


def test_train_returns_the_run_and_calls_back(run_and_calls):
    run, received = run_and_calls
    assert [round.round for round in received["rounds"]] == [1, 2] and received["rounds"][0].rounds == 2
    records = lines(run.path / "rounds.jsonl")
    assert [round.loss for round in received["rounds"]] == [record["loss"] for record in records]
    assert [round.bytes_up for round in received["rounds"]] == [record["bytes_up"] for record in records]
    scores = lines(run.path / "evaluations.jsonl")
    assert [(score.task, score.record["accuracy_likelihood"]) for score in received["evaluations"]] == \
        [(score["task"], score["accuracy_likelihood"]) for score in scores] and len(scores) == 5
    assert received["events"][0]["event"] == "start" and received["events"][-1] == {
        "event": "done", "run": str(run.path), "report": f"{run.path}/report.html", "exit_code": 0}


def test_a_run_from_python_is_bit_identical_to_the_command_line(run_and_calls, tiny_model, tmp_path):
    words = [word for key, value in settings(str(tiny_model)).items() for word in ("--set", f"{key}={json.dumps(value)}")]
    assert evenkeel("train", CONFIG, "--out", tmp_path / "run", *words).returncode == 0
    assert without_seconds(lines(tmp_path / "run/rounds.jsonl")) == without_seconds(lines(run_and_calls[0].path / "rounds.jsonl"))
    assert (tmp_path / "run/adapter/adapter_model.safetensors").read_bytes() == \
        (run_and_calls[0].path / "adapter/adapter_model.safetensors").read_bytes()


def test_data_frames_contain_the_records(run_and_calls):
    run, _ = run_and_calls
    records = lines(run.path / "rounds.jsonl")
    frame = run.rounds
    assert isinstance(frame, pd.DataFrame) and list(frame["loss"]) == [record["loss"] for record in records]
    assert list(frame["seconds.train"]) == [record["seconds"]["train"] for record in records]
    assert "utilization" not in frame and "checksum" not in frame
    clients = run.clients
    assert len(clients) == sum(record["participants"] for record in records) and set(clients["round"]) == {1, 2}
    scores = run.evaluations
    assert list(scores["accuracy_likelihood"]) == [record["accuracy_likelihood"] for record in lines(run.path / "evaluations.jsonl")]
    assert scores.pivot_table("accuracy_likelihood", "task", "budget").shape == (5, 1)


def test_adapter_config_and_manifest_are_those_of_the_run_folder(run_and_calls):
    run, _ = run_and_calls
    expected = load_file(run.path / "adapter/adapter_model.safetensors")
    adapter = run.adapter()
    assert adapter.keys() == expected.keys() and all(np.array_equal(adapter[name], expected[name]) for name in expected)
    assert run.config["train"]["rounds"] == 2 and run.config["method"]["name"] == "fedit"
    assert run.manifest["version"] == ek.__version__


def test_a_report_is_displayed_in_a_notebook(run_and_calls, tmp_path):
    report = run_and_calls[0].report()
    shown = report._repr_html_()
    assert shown.startswith("<iframe") and "srcdoc=" in shown and "<script" not in shown.replace("&lt;script", "")
    assert report.save(tmp_path / "page.html").read_text() == report.html and "fedit" in report.html.lower()
    two = run_and_calls[0].report(run_and_calls[0].path)
    assert len(two.html) > len(report.html)


def test_a_report_is_not_saved_over_a_file_of_a_run(run_and_calls, tmp_path):
    run = run_and_calls[0]
    before = (run.path / "config.toml").read_bytes()
    (tmp_path / "link").symlink_to(run.path / "config.toml")
    for file in (run.path / "config.toml", tmp_path / "link", run.path / "best.json"):
        with pytest.raises(ek.EvenkeelError, match="reads or keeps"):
            run.report().save(file)
    assert (run.path / "config.toml").read_bytes() == before and not (run.path / "best.json").exists()
    assert run.report().save(run.path / "report.html").exists() and run.config["train"]["rounds"] == 2


def test_a_report_outlives_its_runs(run_and_calls, tmp_path):
    """The files of a run that is still there are protected."""
    first, second = (ek.Run(shutil.copytree(run_and_calls[0].path, tmp_path / name)) for name in ("first", "second"))
    report, before = first.report(second), (second.path / "config.toml").read_bytes()
    first.path.rename(tmp_path / "moved")
    assert report.save(tmp_path / "page.html").read_text() == report.html
    with pytest.raises(ek.EvenkeelError, match="reads or keeps"):
        report.save(second.path / "config.toml")
    assert (second.path / "config.toml").read_bytes() == before
    shutil.rmtree(second.path)
    assert report.save(tmp_path / "again.html").read_text() == report.html
    with pytest.raises(ek.EvenkeelError, match=r"^\[io\] .*gone/page.html: No such file"):
        report.save(tmp_path / "gone/page.html")


def test_resume_with_more_rounds_equals_a_longer_run(run_and_calls, tiny_model, tmp_path):
    run = train(tiny_model, tmp_path / "run", {"train__rounds": 1})
    assert len(run.rounds_list()) == 1
    assert run.resume(rounds=2).path == run.path
    assert without_seconds(run.rounds_list()) == without_seconds(run_and_calls[0].rounds_list())


def test_resume_takes_settings(tiny_model, tmp_path):
    run = train(tiny_model, tmp_path / "run", {"train__rounds": 1})
    assert len(run.resume(set={"train.rounds": 2, "evaluate": {"every": 2}}).rounds_list()) == 2
    assert len(run.resume(3, set={"evaluate.every": 3}).rounds_list()) == 3
    for given in ({"train.rounds": 4}, {"train": {"rounds": 4}}):
        with pytest.raises(TypeError, match="rounds and train.rounds of set are the same key"):
            run.resume(rounds=4, set=given)


def adapter_bytes(run):
    return (run.path / "adapter/adapter_model.safetensors").read_bytes()


def own_rows(folder, question):
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(json.dumps({"prompt": question.format(i), "completion": f" {i}"}) + "\n" for i in range(12)))
    return folder


def test_a_run_resumes_with_its_own_files_after_chdir(tiny_model, tmp_path, monkeypatch):
    """The paths of the config and of the run are relative; the other folder has a file of the same name."""
    first, second = own_rows(tmp_path / "first", "What is {}+0?"), own_rows(tmp_path / "second", "Which town is number {}?")
    changes = {"data.task": "files", "data.template": "plain", "data.partition.kind": "iid", "data.limit": 0,
               "data.files": {"train": ["rows.jsonl"], "score": "nll"}}
    monkeypatch.chdir(first)
    whole = ek.train(CONFIG, set={**settings(tiny_model), **changes}, out="whole")
    run = ek.train(CONFIG, set={**settings(tiny_model, train__rounds=1), **changes}, out="run")
    monkeypatch.chdir(second)
    run.resume(rounds=2)
    assert run.path == first / "run" and adapter_bytes(run) == adapter_bytes(whole)
    text = ek.score(["What is 3+0?"], run=run)[0]["logprob"]
    moved = shutil.copytree(tiny_model, tmp_path / "moved")
    assert ek.score(["What is 3+0?"], run=run, base=moved)[0]["logprob"] == text
    assert run.resume(rounds=3, base=moved).manifest["models"]["base"]["folder"] == str(moved)


def test_a_dict_changes_its_keys_alone(tiny_model, tmp_path):
    flat = train(tiny_model, tmp_path / "flat", {"train__batch_size": 2, "train__rounds": 1, "train__optimizer__lr": 0.01})
    nested = ek.train(CONFIG, out=tmp_path / "nested", set={**settings(tiny_model), "train.batch_size": 2,
                                                            "train": {"rounds": 1, "optimizer.lr": 0.01}})
    assert nested.config["train"] == flat.config["train"] and adapter_bytes(nested) == adapter_bytes(flat)


def test_a_tilde_is_the_home_folder(run_and_calls, monkeypatch):
    run, *_ = run_and_calls
    monkeypatch.setenv("HOME", str(run.path.parent))
    again = ek.Run(f"~/{run.path.name}")
    assert again.path == run.path and again.report().save("~/page.html") == run.path.parent / "page.html"


def test_records_are_read_without_pandas_and_safetensors(run_and_calls, monkeypatch):
    run, _ = run_and_calls
    for name in ("pandas", "safetensors", "safetensors.numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    assert len(run.rounds_list()) == 2 and run.rounds_list().flat()[0]["seconds.train"] > 0
    assert "<td>fedit</td>" in run.rounds_list()._repr_html_()
    for read, package, extra in ((lambda: run.rounds, "pandas", "frames"), (lambda: run.evaluations, "pandas", "frames"),
                                 (run.adapter, "safetensors", "tensors")):
        with pytest.raises(ek.MissingPackage, match=rf"{package}, which is not installed: pip install 'evenkeel-moe\[{extra}\]'"):
            read()


def test_reading_a_config_without_tomllib_names_the_missing_package(run_and_calls, monkeypatch):
    for name in ("tomllib", "tomli"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ek.MissingPackage, match=r"evenkeel-moe\[toml\]"):
        _ = run_and_calls[0].config


def test_the_package_alone_needs_the_standard_library_only():
    code = "import sys\nfor name in ('numpy', 'pandas', 'safetensors', 'IPython', 'torch'): sys.modules[name] = None\n" \
           "import evenkeel_moe as ek\nprint(len(ek.list_methods()), len(ek.generate(['a', 'b'], model='builtin:tiny-olmoe', max_new_tokens=2)))"
    out, error = python(code).communicate(timeout=600)
    assert out.split() == [str(len(ek.list_methods())), "2"], error


def test_incomplete_last_lines_of_records_are_ignored(run_and_calls, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    text = (run_and_calls[0].path / "rounds.jsonl").read_text()
    (tmp_path / "rounds.jsonl").write_text(text[:-20])
    assert len(ek.Run(tmp_path).rounds_list()) == 1 and ek.Run(tmp_path).evaluations_list() == []


def test_generate_and_score_agree_with_the_command(run_and_calls, tiny_model):
    run, _ = run_and_calls
    prompts = ["Once", 'a "quoted"\nline', "ü"]
    words = ["generate", "--run", run.path, "--max-new-tokens", 5, "--json"]
    expected = [json.loads(line)["text"] for line in evenkeel(*words, *sum((["--prompt", text] for text in prompts), [])).stdout.splitlines()]
    assert ek.generate(prompts, run=run, max_new_tokens=5) == expected
    assert ek.generate(prompts[0], run=run, max_new_tokens=5) == expected[0]
    scores = ek.score(["a text", ("a", " text"), [7, 8, 9]], model=tiny_model)
    assert [score["index"] for score in scores] == [0, 1, 2] and scores[2]["ids"] == [7, 8, 9]
    assert scores[1]["completion"]["first"] > 0 and scores.frame().shape[0] == 3
    assert scores[0]["logprob"] == pytest.approx(sum(scores[0]["token_logprobs"]), rel=1e-5)


def test_texts_that_cannot_be_scored_raise_an_error(tiny_model):
    with pytest.raises(ek.EvenkeelError, match="input.jsonl") as caught:
        ek.score(["a text", [10**6]], model=tiny_model)
    assert caught.value.exit_code == 1
    scores = ek.score(["a text", [10**6], "b text"], model=tiny_model, strict=False)
    assert [sorted(score)[:2] for score in scores] == [["greedy", "ids"], ["error", "index"], ["greedy", "ids"]]
    with pytest.raises(TypeError, match="a list of texts"):
        ek.score("a text", model=tiny_model)
    with pytest.raises(ek.EvenkeelError, match="nowhere"):
        ek.score([], model="nowhere", strict=False)


def test_texts_of_other_types_are_refused_by_the_name_of_the_argument():
    kinds = r"allowed: a text, a \(prompt, completion\) of texts, or a list of token ids$"
    for row, name in (({"text": "b"}, "dict"), (5, "int"), (None, "NoneType"), ([1.5], "list"), (("a", 1), "tuple")):
        with pytest.raises(TypeError, match=rf"^texts\[1\] is of type {name}, {kinds}"):
            ek.score(["a", row], model="builtin:tiny-olmoe")
    for texts in (5, {"text": "a"}):
        with pytest.raises(TypeError, match="^texts is of type (int|dict), allowed: a list of texts$"):
            ek.score(texts, model="builtin:tiny-olmoe")
    for prompts in (5, None, {"prompt": "a"}):
        with pytest.raises(TypeError, match="^prompts is of type .*, allowed: a text, or a list of texts$"):
            ek.generate(prompts, model="builtin:tiny-olmoe")
    with pytest.raises(TypeError, match=r"^prompts\[1\] is of type int, allowed: a text$"):
        ek.generate(["a", 5], model="builtin:tiny-olmoe")


def test_evaluate_gives_the_scores_of_the_command(run_and_calls):
    run, _ = run_and_calls
    scores = ek.evaluate(run=run, budget=[0.5, 1.0], tasks=["builtin:facts", "builtin:tools"], limit=2)
    done = evenkeel("evaluate", "--run", run.path, "--budget", "0.5,1", "--tasks", "builtin:facts,builtin:tools", "--limit", 2, "--json")
    assert without_seconds(scores) == without_seconds([json.loads(line) for line in done.stdout.splitlines()]) and len(scores) == 4


def test_lists_have_the_entries_of_the_command(tiny_model):
    assert [method["name"] for method in ek.list_methods()] == [line.split()[0] for line in evenkeel("list", "methods").stdout.splitlines()]
    assert {"name": "ub-smoe", "family": "sparsity", "exact": False}.items() <= ek.list_methods()[0].items()
    assert {entry["name"] for entry in ek.list_tasks()} > {"piqa", "builtin:facts"} and ek.list_models()[0]["text"]
    assert {"table", "title", "runs", "done"} <= set(ek.list_tables()[0])
    keys = {key["key"]: key for key in ek.list_keys("train")}
    assert keys["train.rounds"] == {"key": "train.rounds", "type": "integer", "default": "10", "allowed": "1 or more, up to 1000000000",
                                    "help": "number of communication rounds, 1 or more"}


# --- errors ---

@pytest.mark.parametrize("call, words, kind", [
    (lambda: ek.train(CONFIG, set={"train.rounds": -2}), ["train", CONFIG, "--set", "train.rounds=-2"], "config"),
    (lambda: ek.train("no.toml"), ["train", "no.toml"], "io"),
    (lambda: ek.train(CONFIG, set={"model.path": "nowhere"}), ["train", CONFIG, "--set", 'model.path="nowhere"'], "checkpoint"),
    (lambda: ek.evaluate(model="nowhere", tasks="builtin"), ["evaluate", "--model", "nowhere", "--tasks", "builtin"], "checkpoint"),
    (lambda: ek.evaluate(tasks="builtin"), ["evaluate", "--tasks", "builtin"], "config"),
    (lambda: ek.generate("a", model="nowhere"), ["generate", "--model", "nowhere", "--prompt", "a"], None),
    (lambda: ek.export("nowhere", "out"), ["export", "--run", "nowhere", "--out", "out"], None),
    (lambda: ek.list_keys("planets"), ["list", "keys", "planets"], None),
])
def test_an_exception_has_the_programs_error_line(call, words, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = evenkeel(*words, cwd=tmp_path).stderr.splitlines()[-1]
    with pytest.raises(ek.EvenkeelError) as caught:
        call()
    assert "evenkeel: " + str(caught.value) == line and (caught.value.exit_code, caught.value.kind) == (1, kind)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_an_unknown_flag_raises_an_error(tiny_model):
    with pytest.raises(ek.EvenkeelError, match="--planets"):
        ek.generate("a", model=tiny_model, planets=3)


def test_warnings_go_to_the_logger(run_and_calls, caplog):
    run_and_calls[0].resume(rounds=3)
    assert any("3 rounds" in record.message for record in caplog.records if record.name == "evenkeel_moe")


def test_a_folder_without_a_run_is_rejected(tmp_path):
    with pytest.raises(ek.EvenkeelError, match="holds no run"):
        ek.Run(tmp_path)


# --- how the program is found ---

def fake(path, text="#!/bin/sh\necho fake \"$@\"\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


SAYS_VERSION = f"#!/bin/sh\necho evenkeel {ek.__version__}\n"


def test_evenkeel_program_has_precedence_over_the_program_inside_the_package(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(_program, "INSIDE", fake(tmp_path / "_bin/evenkeel"))
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(fake(tmp_path / "mine", SAYS_VERSION)))
    assert ek.program_path() == tmp_path / "mine" and not caplog.records
    monkeypatch.setenv("EVENKEEL_PROGRAM", "")
    assert ek.program_path() == tmp_path / "_bin/evenkeel"


@pytest.mark.parametrize("says, version", [("echo evenkeel 9.8.7", "9.8.7"), ("echo something else", "of an unknown version"),
                                           ("yes evenkeel-lines", "of an unknown version")])
def test_evenkeel_program_of_another_version_is_named_once(monkeypatch, tmp_path, caplog, says, version):
    program = fake(tmp_path / "mine", f"#!/bin/sh\n{says}\n")
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(program))
    for _ in range(2):
        assert ek.program_path() == program
    assert [record.message for record in caplog.records] == \
        [f"EVENKEEL_PROGRAM is {program}, which is {version}; this package is {ek.__version__}"]


def test_evenkeel_program_that_is_no_program_is_refused_by_name(monkeypatch, tmp_path):
    monkeypatch.setattr(_program, "INSIDE", fake(tmp_path / "_bin/evenkeel"))
    (tmp_path / "text").write_text("no program\n")
    for named in (tmp_path, tmp_path / "nothing", tmp_path / "text", fake(tmp_path / "executable", "\x7fELF")):
        monkeypatch.setenv("EVENKEEL_PROGRAM", str(named))
        with pytest.raises(ek.EvenkeelError) as caught:
            ek.list_methods()
        assert (str(caught.value), caught.value.kind) == (f"EVENKEEL_PROGRAM is {named}, which is no program", "io")


def test_a_console_script_named_by_evenkeel_program_does_not_start_itself_for_ever(monkeypatch, tmp_path):
    """The script stands for that of another environment, whose package holds a program."""
    script = fake(tmp_path / "script", f"#!{sys.executable}\nimport os, sys\nsys.path.insert(0, {str(ROOT / 'python')!r})\n"
                  f"from evenkeel_moe import _program\n_program.INSIDE = _program.pathlib.Path({os.environ['EVENKEEL_PROGRAM']!r})\n"
                  "_program.main()\n")
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(script))
    assert len(ek.list_methods()) > 3


def test_evenkeel_program_has_precedence_over_path_and_must_name_a_program(monkeypatch, tmp_path):
    monkeypatch.setattr(_program, "INSIDE", tmp_path / "absent")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    binary = fake(tmp_path / "path/evenkeel", "\x7fELF")
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(fake(tmp_path / "named", SAYS_VERSION)))
    assert ek.program_path() == tmp_path / "named"
    monkeypatch.delenv("EVENKEEL_PROGRAM")
    assert ek.program_path() == binary
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(tmp_path / "nothing"))
    with pytest.raises(ek.EvenkeelError, match="EVENKEEL_PROGRAM is .*nothing, which is no program"):
        ek.program_path()


def test_a_script_named_evenkeel_on_the_path_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setattr(_program, "INSIDE", tmp_path / "absent")
    monkeypatch.delenv("EVENKEEL_PROGRAM")
    monkeypatch.setenv("PATH", str(tmp_path))
    for place in ("nothing", "script"):
        if place == "script":
            fake(tmp_path / "evenkeel")
        with pytest.raises(ek.EvenkeelError, match="the program is not found: neither"):
            ek.program_path()


def test_the_console_script_runs_the_program():
    out, _ = python("import sys; from evenkeel_moe._program import main; main(sys.argv[1:])", "list", "methods").communicate(timeout=600)
    assert out == evenkeel("list", "methods").stdout
    done = subprocess.run([sys.executable, "-m", "evenkeel_moe", "list", "planets"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    assert done.returncode == 1 and "planets" in done.stderr
    lost = subprocess.run([sys.executable, "-m", "evenkeel_moe"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "EVENKEEL_PROGRAM": "nowhere"})
    assert (lost.returncode, lost.stdout) == (1, "") and lost.stderr.startswith("evenkeel: EVENKEEL_PROGRAM is nowhere")


def test_evenkeel_torch_is_checked_by_every_command(monkeypatch, tmp_path):
    """Tests the checks without a wheel. tests/e2e/test_wheel.py tests a wheel with another torch."""
    (tmp_path / "torch-version").write_text("2.13.0\n")
    monkeypatch.setattr(_torch, "BUILT_WITH", tmp_path / "torch-version")
    monkeypatch.setenv("EVENKEEL_TORCH", str(tmp_path))
    with pytest.raises(ek.EvenkeelError, match="EVENKEEL_TORCH is .* does not name a version"):
        ek.list_methods()
    with pytest.raises(SystemExit):
        _program.main(["list", "methods"])
    monkeypatch.setenv("EVENKEEL_TORCH", str(tmp_path / "with blank"))
    with pytest.raises(ek.EvenkeelError, match="has a blank or a colon in its path"):
        ek.list_methods()
    monkeypatch.setenv("EVENKEEL_TORCH", str(tmp_path))
    (tmp_path / "version.py").write_text("__version__ = '2.13.1+cpu'\n")
    with pytest.raises(ek.EvenkeelError, match="libtorch_cpu.so is missing"):
        ek.list_methods()


def test_shipped_configs_are_found_from_any_folder(monkeypatch, tmp_path, tiny_model):
    monkeypatch.chdir(tmp_path)
    run = ek.train("configs/tiny/train.toml", set=settings(tiny_model, train__rounds=1, evaluate__limit=1), out="run")
    assert len(run.rounds_list()) == 1


def test_what_ships_is_found_beside_the_program(monkeypatch, tmp_path):
    """As with a package that is installed without a program, and $EVENKEEL_PROGRAM."""
    monkeypatch.setattr(_program, "SHARED", tmp_path / "none")
    monkeypatch.setattr(_program, "PACKAGE", tmp_path / "some/site-packages/evenkeel_moe")
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(fake(tmp_path / "sources/build/release/evenkeel", SAYS_VERSION)))
    config = fake(tmp_path / "sources/configs/demo.toml")
    assert _program.shared_path("configs/demo.toml") == config
    for shared in ("share/evenkeel", "_share"):
        program = fake(tmp_path / shared.replace("/", "-") / "bin/evenkeel", SAYS_VERSION)
        monkeypatch.setenv("EVENKEEL_PROGRAM", str(program))
        assert _program.shared_path("configs/demo.toml") is None
        config = fake(program.parents[1] / shared / "configs/demo.toml")
        assert _program.shared_path("configs/demo.toml") == config
    monkeypatch.setenv("EVENKEEL_PROGRAM", str(tmp_path / "nothing"))
    assert _program.shared_path("configs/demo.toml") is None


@pytest.mark.parametrize("script, says", [("import os; os.kill(os.getpid(), 9)", "fetch.py was ended by SIGKILL"),
                                          ("raise SystemExit(3)", "fetch.py ended with exit code 3"),
                                          ("raise SystemExit('a\\nreason')", "^reason")])
def test_a_fetch_that_fails_is_an_error_also_without_a_word(monkeypatch, tmp_path, script, says):
    (tmp_path / "fetch.py").write_text(script)
    monkeypatch.setattr(commands, "shared_path", lambda _: tmp_path / "fetch.py")
    with pytest.raises(ek.EvenkeelError, match=says):
        ek.fetch_smollm2(tmp_path / "model")


# --- values, types, versions ---

@pytest.mark.parametrize("value", [True, False, 0, -7, 2**40, 0.1, 1e-300, -2.5e10, "", "plain", 'a "quoted" \\ path', "ü – 日本", "line\nbreak\ttab",
                                   "\x01\x7f", [], [1, 2], [0.5, 1.0], ["a", 'b"'], {}, {"values": [0.5], "shares": [1, 2]}, {"a b": {"c": "d"}}])
def test_values_are_written_as_toml(value):
    assert tomllib.loads(f"x = {_toml.toml_value(value)}") == {"x": value}


def test_paths_tuples_and_numpy_numbers_are_written_as_toml():
    assert _toml.toml_value(pathlib.Path("a b/c")) == '"a b/c"' and _toml.toml_value((1, 2)) == "[1, 2]"
    assert _toml.toml_value(np.float64(0.5)) == "0.5" and _toml.toml_value(np.int64(3)) == "3"
    for wrong in (None, object(), {1, 2}):
        with pytest.raises(TypeError, match="allowed: bool, int"):
            _toml.toml_value(wrong)


@pytest.mark.parametrize("value, says", [
    (pd.DataFrame({"question": ["a"] * 10000}), "is of type DataFrame, allowed: bool, int, float, str, path, list and dict"),
    ([{"question": "a"}] * 1000, "is a list of dicts, allowed: numbers and texts; rows go with data.files.train"),
    (object(), "is of type object, allowed: bool, int, float, str, path, list and dict")])
def test_rows_under_a_key_of_no_files_are_refused_in_one_line_without_showing_them(value, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (lambda: ek.train(CONFIG, set={"data.limit": value}), lambda: ek.train(CONFIG, set={"data": {"limit": value}}),
                 lambda: ek.train({"data": {"limit": value}})):
        with pytest.raises(TypeError) as caught:
            call()
        text = str(caught.value)
        assert text.startswith("data.limit ") and says in text and "\n" not in text and len(text) < 250, text
    with pytest.raises(TypeError, match="limit is of type .*, allowed: a text, a path, a number, or a list of them"):
        ek.evaluate(model="builtin:tiny-olmoe", tasks="builtin", limit=value)
    assert not list(tmp_path.iterdir())


def test_a_table_of_clients_is_a_list_of_dicts():
    assert tomllib.loads("\n".join(_toml.set_flags({"clients.client": [{"budget": 0.5}, {"budget": 1.0}]})[1::2])) == \
        {"clients": {"client": [{"budget": 0.5}, {"budget": 1.0}]}}


def test_a_config_may_be_a_dict(tiny_model, tmp_path):
    config = tomllib.loads(CONFIG.read_text())
    chosen = settings(tiny_model, train__rounds=1, evaluate__limit=1)
    whole = ek.train(CONFIG, set=chosen, out=tmp_path / "whole")
    run = ek.train(config, set=chosen, out=tmp_path / "run")
    assert {**run.config, "output": None} == {**whole.config, "output": None}
    assert without_seconds(run.evaluations_list()) == without_seconds(whole.evaluations_list())
    assert (run.path / "adapter/adapter_model.safetensors").read_bytes() == (whole.path / "adapter/adapter_model.safetensors").read_bytes()
    assert len(run.resume(rounds=2).rounds_list()) == 2
    again = ek.train({**run.config, "output": {}, "train": {**run.config["train"], "rounds": 1}}, out=tmp_path / "again")
    assert len(again.rounds_list()) == 1
    with pytest.raises(ek.EvenkeelError, match="train.round is not a known key"):
        ek.train({"train": {"round": 1}}, out=tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


# --- evaluations, memory ---

def test_values_of_an_evaluation_are_attributes(run_and_calls):
    score = run_and_calls[1]["evaluations"][0]
    assert {"accuracy", "accuracy_likelihood", "log_likelihood", "round"} <= set(score.record)
    for name, value in score.record.items():
        assert getattr(score, name) == value, name
    assert score.accuracy == score.record["accuracy"] and {"accuracy", "task", "record"} <= set(dir(score))
    with pytest.raises(AttributeError, match="this evaluation has no accuracies; it has .*accuracy"):
        _ = score.accuracies
    assert copy.deepcopy(score) == score and pickle.loads(pickle.dumps(score)) == score


MANY_EVENTS = r"""
import sys
if "--version" in sys.argv:
    print("evenkeel VERSION")
    raise SystemExit
write = sys.stdout.write
write('{"event":"start","version":1,"program":"VERSION","command":"train","pid":1,"run":"x"}\n')
for i in range(60000):
    write('{"event":"progress","phase":"train","round":3,"rounds":10,"clients_done":1,"clients":2,"steps_done":%d,"steps_left":100,'
          '"tokens_per_second":12345.6,"seconds_left":100.5}\n' % i)
    if i % 4 == 0:
        sys.stderr.write("a line without an end, as a progress bar writes" + " " * 900)
write('{"event":"evaluation","round":1,"task":"a","budget":1.0,"accuracy":0.5}\n')
write('{"event":"done","run":"RUN","report":"x/report.html","exit_code":0}\n')
"""


@pytest.mark.parametrize("call", ["train('run.toml', progress=False, on_event=count)", "evaluate(run='x', progress=False, on_event=count)"])
def test_events_that_are_not_returned_are_not_kept(call, tmp_path):
    """60,000 events and 14 MB of stderr take 60 MB when they are kept."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/manifest.json").write_text("{}")
    program = fake(tmp_path / "program", f"#!{sys.executable}" + MANY_EVENTS.replace("VERSION", ek.__version__).replace("RUN", str(tmp_path / "run")))
    code = f"""
import os, resource, evenkeel_moe as ek
os.environ["EVENKEEL_PROGRAM"] = {str(program)!r}
ek.program_path()
seen = 0
def count(event):
    global seen
    seen += 1
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = ek.{call}
print(seen, len(result) if isinstance(result, list) else 1, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    out, error = python(code).communicate(timeout=600)
    assert out, error
    seen, results, mebibytes = map(int, out.split())
    assert (seen, results) == (60003, 1) and mebibytes < 10, error


def test_settings_reach_the_program_unchanged(tiny_model, tmp_path):
    name = 'it\'s a "name" – \\ ü'
    run = train(tiny_model, tmp_path / "run", {"name": name, "train__rounds": 1, "evaluate__limit": 1,
                                               "clients__budgets": {"values": [0.5, 1.0], "shares": [2, 3]}})
    assert run.config["name"] == name and sorted(run.config["clients"]["budgets"]["values"]) == [0.5, 1.0]


def test_the_package_has_the_programs_version():
    assert f"project(evenkeel VERSION {ek.__version__} " in (ROOT / "CMakeLists.txt").read_text()
    assert evenkeel("--version").stdout == f"evenkeel {ek.__version__}\n"


def test_the_package_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "user.py").write_text("import evenkeel_moe as ek\nrun = ek.train('a.toml', set={'a': 1}, on_round=print)\n"
                                      "losses: list[float] = [record['loss'] for record in run.rounds_list()]\nreveal_type(run.report())\n")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "--config-file",
                           ROOT / "python/pyproject.toml", "-p", "evenkeel_moe"], cwd=ROOT / "python", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    user = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent", "--cache-dir", tmp_path / "cache",
                           tmp_path / "user.py"],
                          env={**os.environ, "MYPYPATH": str(ROOT / "python")}, cwd=tmp_path, capture_output=True, text=True)
    assert "evenkeel_moe.run.Report" in user.stdout and "Success" in user.stdout, user.stdout


def test_every_public_name_has_a_docstring():
    for name in set(ek.__all__) - {"__version__"}:
        assert (getattr(ek, name).__doc__ or "").strip(), name


def test_the_package_parses_json_lines_only():
    """The package reads JSON lines from stdout, and from stderr only the error line and the level of log lines.

    Its single regular expression is for the latter.
    """
    code = "".join(path.read_text() for path in (ROOT / "python/evenkeel_moe").glob("*.py"))
    assert len(re.findall(r"re\.compile", code)) == 1
