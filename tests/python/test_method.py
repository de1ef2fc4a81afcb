"""Tests methods in Python: hooks of the server, options, errors, and what a run folder holds of them."""

import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy
import pytest

import evenkeel_moe as ek
from evenkeel_moe._objects import Step, places
from evenkeel_moe._served import ServedMethods
from evenkeel_moe._source import sha256_of_source
from evenkeel_moe._wire import _encoded
from own_method import METHODS, adapter, python, records, succeeded, train  # noqa: F401
from tiny import PROGRAM, one_line, started

MOMENTUM = METHODS / "momentum.py"
sys.path.insert(0, str(METHODS))
from momentum import ServerMomentum  # noqa: E402


def test_without_momentum_the_adapter_has_the_bits_of_fedit(config, fedit, momentum, tmp_path):
    succeeded(config, tmp_path / "run", "--set", "method.server-momentum.momentum=0", method=f"{MOMENTUM}:ServerMomentum")
    assert adapter(tmp_path / "run") == adapter(fedit) != adapter(momentum)
    assert [record["diagnostics"]["velocity_norm"] > 0 for record in records(momentum)] == [True] * 2


def test_the_run_folder_holds_the_source_and_the_options(momentum):
    manifest = json.loads((momentum / "manifest.json").read_text())
    own = manifest["method"]
    assert (own["name"], own["file"], own["class"]) == ("server-momentum", str(MOMENTUM), "ServerMomentum")
    assert own["sha256"] == hashlib.sha256(MOMENTUM.read_bytes()).hexdigest() and own["hooks"] == ["aggregate", "diagnostics"]
    assert "[method.server-momentum]\nmomentum = 0.9" in (momentum / "config.toml").read_text()
    assert started("report", momentum).returncode == 0  # without the class


def test_a_stopped_run_resumes_to_the_same_bits(config, momentum, tmp_path):
    method = f"{MOMENTUM}:ServerMomentum"
    succeeded(config, tmp_path / "run", "--set", "train.rounds=1", method=method)
    one_line(train(config, tmp_path / "run", "--resume", "--set", "train.rounds=2"), "server-momentum", "--method", MOMENTUM)
    succeeded(config, tmp_path / "run", "--resume", "--set", "train.rounds=2", method=method)
    assert adapter(tmp_path / "run") == adapter(momentum)


def test_a_killed_run_resumes_to_the_same_bits(config, momentum, tmp_path):
    method, out = f"{MOMENTUM}:ServerMomentum", tmp_path / "run"
    process = subprocess.Popen([PROGRAM, "train", config, "--out", out, "--quiet", "--method", method], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and not (out / "rounds.jsonl").exists():
        time.sleep(0.01)
    process.kill()
    process.wait()
    succeeded(config, out, "--resume", method=method)
    assert adapter(out) == adapter(momentum)


def test_a_changed_source_is_refused_unless_told(config, tmp_path):
    own = tmp_path / "own.py"
    own.write_text(MOMENTUM.read_text())
    succeeded(config, tmp_path / "run", "--set", "train.rounds=1", method=f"{own}:ServerMomentum")
    own.write_text(MOMENTUM.read_text() + "# another line\n")
    more = ["--resume", "--set", "train.rounds=2"]
    one_line(train(config, tmp_path / "run", *more, method=f"{own}:ServerMomentum"), "own.py", "sha256", "--changed-method")
    assert len(records(tmp_path / "run")) == 1
    succeeded(config, tmp_path / "run", *more, "--changed-method", method=f"{own}:ServerMomentum")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert manifest["method"]["sha256"] == hashlib.sha256(own.read_bytes()).hexdigest() == manifest["changes"][-1]["method"]["sha256"]


@pytest.mark.parametrize("name, words", [
    ("Raises", ["method raises: hook aggregate of round 2", "KeyError: 'missing'", "momentum.py, line", "in aggregate"]),
    ("Killed", ["method killed: hook aggregate of round 2", "was killed by signal 9"]),
    ("Hangs", ["method hangs: hook aggregate of round 2", "within 1 s", "seconds"]),
    ("WrongShape", ["down_proj.b has shape [64, 128, 3], expected [64, 128, 2]"]),
    ("WrongType", [".b is Double, expected float32"]),
    ("WrongName", ["model.layers.9.nothing", "is no adapted weight"]),
    ("NotFinite", ["not finite"]),
    ("MemoryNotFinite", ["value", "not finite"]),
    ("Returns", ["returned NoneType, expected ServerState"]),
])
def test_a_hook_that_fails_is_one_line_and_the_last_commit_stays(config, tmp_path, name, words):
    done = train(config, tmp_path / "run", "--set", "evaluate.every=0", "--set", "train.local_epochs=0.1", method=f"{MOMENTUM}:{name}")
    one_line(done, *words)
    assert ("Traceback" in done.stderr) == (name in ("Raises", "Returns"))
    assert len(records(tmp_path / "run")) == 1
    assert started("status", tmp_path / "run").returncode == 0


@pytest.mark.parametrize("name, words", [
    ("KeepsNoGradient", ["hook edit_gradients of client 0", "gradients lacks", "edit tensors in place"]),
    ("UsesMoreExperts", ["hook prepare of client 0", "top_k is 8, allowed: 1 to 1"]),
    ("UsesAnyNumberOfExperts", ["top_k is 0, allowed: 1 to 1"]),
    ("OneWeight", ["hook aggregate of round 1", "has 1 weights, expected one for each of 4 uploads"]),
    ("ScalesByNothing", ["hook prepare of client 0", "ValueError in the result"]),
])
def test_what_a_hook_may_not_do_is_one_line(config, tmp_path, name, words):
    one_line(train(config, tmp_path / "run", "--set", "train.rounds=1", "--set", "train.local_epochs=0.1", method=f"{MOMENTUM}:{name}"), *words)


def test_numbers_that_are_not_finite_and_other_names_are_refused_where_they_are_given():
    with pytest.raises(ValueError, match="the loss is nan"):
        ek.Loss(float("nan"))
    step = Step.__new__(Step)
    step._metrics = []
    for name, value, weight in [("Share", 1, 1), ("a share", 1, 1), ("share", float("inf"), 1), ("share", 1, 0)]:
        with pytest.raises(ValueError, match=f"metric '?{name}"):
            step.add_metric(name, value, weight)
    step.add_metric("share_1", numpy.float32(0.5))
    assert step._metrics == [["share_1", 0.5, 1.0]]
    with pytest.raises(TypeError, match="a name of a tensor is 3, expected a str"):
        places({3: numpy.zeros(2)}, None)
    assert _encoded({"top_k": numpy.int64(2)}) == b'{"top_k":2}'


@pytest.mark.parametrize("method, words", [
    ("nowhere.py:X", ["nowhere.py", "is no file"]),
    ("momentum.py", ["allowed: FILE.py:CLASS"]),
    (f"{MOMENTUM}:Nothing", ["has no class Nothing", "ServerMomentum"]),
    (f"{MOMENTUM}:numpy", ["is no class of a method"]),
])
def test_a_class_that_is_not_there_is_refused(config, tmp_path, method, words):
    one_line(train(config, tmp_path / "run", method=method), *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting, words", [
    ("momentum=1.5", ["momentum is 1.5, allowed: 0 .. 1"]),
    ("momentum=\"much\"", ["method.server-momentum.momentum", "number"]),
    ("decay=0.5", ["method.server-momentum.decay", "known", "momentum"]),
])
def test_options_are_checked_before_anything_runs(config, tmp_path, setting, words):
    one_line(train(config, tmp_path / "run", "--set", f"method.server-momentum.{setting}", method=f"{MOMENTUM}:ServerMomentum"), *words)
    assert not (tmp_path / "run").exists()


def test_single_uploads_need_a_word_of_the_class(config, tmp_path):
    one_line(train(config, tmp_path / "run", method=f"{MOMENTUM}:OneByOne"), "needs_individuals = True")


def test_a_file_with_an_error_names_its_line(config, tmp_path):
    (tmp_path / "wrong.py").write_text("import evenkeel_moe as ek\nclass Wrong(ek.Method:\n    pass\n")
    one_line(train(config, tmp_path / "run", method=f"{tmp_path / 'wrong.py'}:Wrong"), "SyntaxError", "wrong.py, line 2")


def test_an_interrupted_run_stops_and_its_host_with_it(config, tmp_path):
    own = tmp_path / "slow.py"
    own.write_text(f"import os, pathlib, time\nimport evenkeel_moe as ek\nclass Slow(ek.Method):\n    def aggregate(self, *arguments):\n"
                   f"        pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n        time.sleep(100)\n")
    process = subprocess.Popen([PROGRAM, "train", config, "--out", tmp_path / "run", "--quiet", "--method", f"{own}:Slow"],
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped in hook aggregate of round 1" in said and "--method" in said
    host = int((tmp_path / "pid").read_text())
    for _ in range(200):
        if not pathlib.Path(f"/proc/{host}").exists():
            break
        time.sleep(0.02)
    assert not pathlib.Path(f"/proc/{host}").exists()


def shell(command):
    """Runs a command that a message says, as a user pastes it."""
    return subprocess.run(command, shell=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_the_command_of_status_resumes(config, tmp_path):
    out, method = tmp_path / "a run", f"{MOMENTUM}:ServerMomentum"
    process = subprocess.Popen([PROGRAM, "train", config, "--out", out, "--quiet", "--method", method, "--set", "train.rounds=30"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    while process.poll() is None and not (out / "rounds.jsonl").exists():
        time.sleep(0.01)
    process.kill()
    process.wait()
    command = re.search("resume with: (.*)", started("status", out).stdout)[1]
    assert f"--method {method}" in command and len(records(out)) < 30
    done = shell(command)
    assert done.returncode == 0 and len(records(out)) == 30, done.stderr
    one_line(train(config, out, method=method), f"resume it with: {command}")


def test_the_command_of_an_interrupted_class_resumes(config, tmp_path):
    def stop(round):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="resume with: ") as raised:
        ek.train(config, method=ServerMomentum, set={"train.rounds": 30}, out=tmp_path / "run", on_round=stop)
    command = str(raised.value).split("resume with: ")[1]
    assert f"--method {MOMENTUM}:ServerMomentum" in command
    done = shell(command)
    assert done.returncode == 0 and len(records(tmp_path / "run")) == 30, done.stderr
    tried = re.search("try the model: (.*)", done.stderr)[1]
    assert f"--method {MOMENTUM}:ServerMomentum" in tried and shell(f"{tried} --max-new-tokens 2").returncode == 0


def test_a_class_without_a_file_is_said_to_have_none():
    own = type("Own", (ek.Method,), {"__module__": "no_module_of_a_file"})
    for methods, says in (([own], "evenkeel train; Own has no file for --method"), ([ServerMomentum], "evenkeel train")):
        error = KeyboardInterrupt("stopped, the state is saved; resume with: evenkeel train")
        ServedMethods(methods)._say_how_to_go_on(error)
        assert says in str(error) and ("no file" in str(error)) == (own in methods)


def study_of(config, folder, *settings):
    """Writes a study of FedIT and server momentum with settings of all arms, and returns its file."""
    (folder / "study.toml").write_text(
        f'[study]\nbase = "{config}"\nseeds = [1]\nreference = "fedit"\nset = {json.dumps(["train.rounds=1", *settings])}\n'
        + "".join(f'[[study.arm]]\nname = "{name}"\nset = ["method.name={name}"]\n' for name in ("fedit", "server-momentum")))
    return folder / "study.toml"


def test_the_job_array_of_a_study_names_the_methods_file(config, tmp_path):
    file, method = study_of(config, tmp_path), f"{MOMENTUM}:ServerMomentum"
    done = started("study", file, "--out", tmp_path / "out", "--method", method, "--dry-run")
    assert done.returncode == 0, done.stderr
    command = re.search(r"--wrap='(.*?) --shard", done.stdout)[1]
    assert f"--method {method}" in command
    made = shell(f"{command} --shard 2/2")
    assert made.returncode == 0 and (tmp_path / "out/server-momentum/seed-1/adapter").is_dir(), made.stderr
    assert started("doctor", "--config", file, "--method", method, cwd=tmp_path).returncode == 0


def test_a_config_of_a_run_is_shown_with_its_method(config, momentum):
    method = f"{MOMENTUM}:ServerMomentum"
    for command in (["tokenize", "--rows", 1], ["doctor"]):
        one_line(started(*command, "--config", momentum / "config.toml"), "method.name is \"server-momentum\"", "--method FILE.py:CLASS")
        for file in (momentum / "config.toml", config):
            done = started(*command, "--config", file, "--method", method)
            assert done.returncode == 0, done.stderr
        one_line(started(*command[:1], "--method", method), "--method goes with --config")


@pytest.mark.parametrize("setting", ["method.name=ffa-lora", "method={name=\"ffa-lora\"}"])
def test_a_flag_and_a_setting_that_choose_two_methods_are_refused(config, tmp_path, setting):
    method = f"{MOMENTUM}:ServerMomentum"
    for done in (train(config, tmp_path / "run", "--set", setting, method=method),
                 started("tokenize", "--config", config, "--method", method, "--set", setting),
                 started("doctor", "--config", config, "--method", method, "--set", setting)):
        one_line(done, f"--set method.name is ffa-lora, but --method is {method}: give one of the two")
    assert not (tmp_path / "run").exists()
    same = train(config, tmp_path / "run", "--set", setting.replace("ffa-lora", "server-momentum"), "--print-config", method=method)
    assert same.returncode == 0, same.stderr


def test_a_study_does_not_go_on_with_another_source(config, tmp_path):
    file, own, out = study_of(config, tmp_path), tmp_path / "own.py", tmp_path / "out"
    own.write_text(MOMENTUM.read_text())
    command = "study", file, "--out", out, "--method", f"{own}:ServerMomentum"
    done = started(*command, "--only", "server-momentum:1")
    assert done.returncode == 0, done.stderr
    own.write_text(own.read_text() + "\n# another source\n")
    state = (out / "study.json").read_bytes()
    one_line(started(*command, "--resume"), f"server-momentum:1: {own} is not the source of method server-momentum", "put the file back")
    assert (out / "study.json").read_bytes() == state and not (out / "fedit/seed-1").exists()


def test_keys_of_a_method_may_stand_in_the_config_of_another(config, tmp_path):
    """As in a study, whose arms share a base config."""
    ek.Study(study_of(config, tmp_path, "method.server-momentum.momentum=0.5"), out=tmp_path / "out", methods=[ServerMomentum]).run()
    for arm in ("fedit", "server-momentum"):
        (run,) = ek.Study.open(tmp_path / "out").runs(arm)
        assert run.config["method"]["name"] == arm and run.config["method"]["server-momentum"] == {"momentum": 0.5}


def test_the_digest_of_a_source_is_over_the_modules_beside_it_too(tmp_path):
    own, helper = tmp_path / "own.py", tmp_path / "helper.py"
    own.write_text("import json\nfrom evenkeel_moe import Method\n")
    assert sha256_of_source(own) == hashlib.sha256(own.read_bytes()).hexdigest()
    (tmp_path / "package").mkdir()
    for text, file in [("import helper", helper), ("from helper import X", helper), ("def hook():\n    import helper as h", helper),
                       ("from package.part import X", tmp_path / "package/part.py"), ("from package import part", tmp_path / "package/part.py")]:
        own.write_text(text + "\n")
        digests = []
        for content in ("X = 1\n", "X = 2\n"):
            file.write_text(content)
            digests.append(sha256_of_source(own))
        assert digests[0] != digests[1] != hashlib.sha256(own.read_bytes()).hexdigest(), text
    helper.write_text("import own\n")
    own.write_text("import helper\n")
    assert len(sha256_of_source(own)) == 64  # a circle ends
