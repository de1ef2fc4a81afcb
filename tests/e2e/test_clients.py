"""Tests clients with their own files: training, scores on their own rows and on all rows, reports, resuming, and
errors.
"""

import hashlib
import json
import tomllib

import pytest

from tiny import CONFIG, evenkeel, lines, one_line, page_data, settings, succeed

NAMES = ["north", "east", "south"]
BUDGETS = [0.25, 1.0, 0.25]


def rows(subject, count):
    return "".join(json.dumps({"instruction": f"Is {subject} {i} even?", "input": "",
                               "output": "yes" if i % 2 == 0 else "no"}) + "\n" for i in range(count))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Writes the rows of three clients: north (two files by a pattern, a test file), east (a test file), south (held-out rows)."""
    folder = tmp_path_factory.mktemp("clients")
    for name, text in {"north-1.jsonl": rows("ship", 6), "north-2.jsonl": rows("sea", 4), "north-test.jsonl": rows("isle", 3),
                       "east.jsonl": rows("sun", 9), "east-test.jsonl": rows("dawn", 4),
                       "south.jsonl": rows("sand", 12)}.items():
        (folder / name).write_text(text)
    return folder


def clients(data, **changes):
    """Returns [[clients.client]] as TOML, with changes such as north={"data": ...}."""
    said = {"north": {"data": str(data / "north-[12].jsonl"), "test": str(data / "north-test.jsonl")},
            "east": {"data": str(data / "east.jsonl"), "test": str(data / "east-test.jsonl")},
            "south": {"data": str(data / "south.jsonl"), "held_out": 0.25}}
    for name, change in changes.items():
        said[name].update(change)
    tables = [{"name": name, "budget": budget, **said[name]} for name, budget in zip(NAMES, BUDGETS)]
    return "[" + ", ".join("{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in table.items()) + "}"
                           for table in tables) + "]"


def config_file(folder, data, **changes):
    """Returns the tiny config without its clients and rows."""
    said = tomllib.loads(CONFIG.read_text())
    text = CONFIG.read_text().split("[clients]")[0].split("[data]")[0] + "[method]" + CONFIG.read_text().split("[method]")[1]
    assert said["clients"]["count"] == 5
    file = folder / "clients.toml"
    file.write_text(text + '\n[data]\ntask = "files"\nfiles = { score = "choice", options = ["yes", "no"] }\ncutoff = 640\n'
                    f"[clients]\nclient = {clients(data, **changes)}\n")
    return file


def arguments(model, **changes):
    return settings(model__path=model, train__rounds=2, evaluate__per_client="true", evaluate__before="true",
                    evaluate__limit=0, method__name="fedit", **changes)


@pytest.fixture(scope="module")
def run(tiny_model, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    file = config_file(folder, data)
    done = succeed("train", file, "--out", folder / "out", *arguments(tiny_model))
    return folder / "out", done, file


def test_every_client_trains_on_its_own_rows(run, data):
    out, _, _ = run
    partition = json.loads((out / "partition.json").read_text())
    assert [len(part) for part in partition["clients"]] == [10, 9, 9]
    assert [[file.rsplit("/", 1)[1] for file in files] for files in partition["client_files"]] == [
        ["north-1.jsonl", "north-2.jsonl"], ["east.jsonl"], ["south.jsonl"]]
    for record in lines(out / "rounds.jsonl"):
        assert [(c["name"], c["budget"], c["examples"]) for c in record["clients"]] == [
            ("north", 0.25, 10), ("east", 1.0, 9), ("south", 0.25, 9)]


def test_the_manifest_contains_every_clients_files(run, data):
    files = {entry["path"]: entry for entry in json.loads((run[0] / "manifest.json").read_text())["files"]}
    for file in data.iterdir():
        entry = files[str(file)]
        assert entry["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert entry["clients"] == [file.name.split("-")[0].split(".")[0]]


def test_every_client_is_scored_on_its_own_rows_and_on_all(run):
    found = [line for line in lines(run[0] / "evaluations.jsonl") if "client" in line]
    assert [(l["round"], l["client"], l["client_name"], l["rows_of"], l["budget"], l["rows"]) for l in found] == [
        (r, i, name, whose, BUDGETS[i], own if whose == "own" else 10)
        for r in (0, 2) for i, (name, own) in enumerate(zip(NAMES, (3, 4, 3))) for whose in ("own", "all")]
    plain = {(l["round"], l["budget"]): l["accuracy_likelihood"]
             for l in lines(run[0] / "evaluations.jsonl") if "client" not in l}
    last = {l["client"]: l for l in found if l["round"] == 2 and l["rows_of"] == "all"}
    assert last[0]["accuracy_likelihood"] == last[2]["accuracy_likelihood"]  # same budget: scored once
    assert last[1]["accuracy_likelihood"] == plain[2, 1.0]


def test_a_score_on_own_rows_equals_evaluate_on_the_file(run, data, tiny_model):
    done = succeed("evaluate", "--run", run[0], "--tasks", "files", "--data", data / "east-test.jsonl", "--score", "choice",
                   "--options", "yes,no", "--budget", "1", "--json")
    again = [json.loads(line) for line in done.stdout.splitlines()]
    own = next(l for l in lines(run[0] / "evaluations.jsonl")
               if l.get("client_name") == "east" and l["rows_of"] == "own" and l["round"] == 2)
    assert len(again) == 1
    for key in ("rows", "top_k", "accuracy", "accuracy_likelihood", "invalid_rate", "chance", "majority"):
        assert again[0][key] == own[key], key


def test_train_ends_with_a_line_about_clients_and_report_with_their_table(run):
    out, done, _ = run
    assert done.stdout.count("3 clients at their own budgets, files:") == 1
    assert "north" not in done.stdout
    text = succeed("report", out).stdout
    for name in NAMES:
        assert f"({name})" in text
    assert "within one question" in text
    table = succeed("report", out, out, "--table", "client-scores").stdout
    assert "0 gain, 0 lose, 3 within one question" in table  # compared with itself
    page = succeed("report", out, "--html", out.parent / "page.html") and (out.parent / "page.html").read_text()
    clients = page_data(page)["clients"]["runs"][0]
    own = [one for one in clients["clients"] if "(north)" in one["client"]]
    assert len(own) == 1 and {"before", "own", "gain", "all"} <= set(own[0]) and "within one question" in clients["counts"]
    assert 'id="clients"' in page


def test_a_run_with_listed_clients_resumes_to_the_same_bits(run, data, tiny_model, tmp_path):
    out, _, file = run
    succeed("train", file, "--out", tmp_path / "half", *arguments(tiny_model))
    (tmp_path / "half/evaluations.jsonl").write_text("".join(
        line + "\n" for line in (out / "evaluations.jsonl").read_text().splitlines()[:-3]))
    succeed("train", file, "--out", tmp_path / "half", "--resume", *arguments(tiny_model))
    strip = lambda all: [{k: v for k, v in l.items() if k not in ("seconds", "checksum")} for l in all]
    assert strip(lines(tmp_path / "half/evaluations.jsonl")) == strip(lines(out / "evaluations.jsonl"))
    assert (tmp_path / "half/adapter/adapter_model.safetensors").read_bytes() == (
        out / "adapter/adapter_model.safetensors").read_bytes()


def test_a_changed_file_is_rejected(tiny_model, tmp_path):
    (tmp_path / "own").mkdir()
    for name, text in {"north-1.jsonl": rows("a", 4), "north-test.jsonl": rows("b", 2), "east.jsonl": rows("c", 4),
                       "east-test.jsonl": rows("d", 2), "south.jsonl": rows("e", 8)}.items():
        (tmp_path / "own" / name).write_text(text)
    file = config_file(tmp_path, tmp_path / "own")
    quick = arguments(tiny_model, evaluate__every=0)
    succeed("train", file, "--out", tmp_path / "out", *quick)
    (tmp_path / "own/east-test.jsonl").write_text(rows("f", 2))
    one_line(evenkeel("train", file, "--out", tmp_path / "out", "--resume", *quick), "east-test.jsonl", "has changed since")


@pytest.mark.parametrize("change, words", [
    ({"east": {"data": "missing.jsonl"}}, ["client 1 (east)", "missing.jsonl", "not there"]),
    ({"east": {"data": "no-*.jsonl"}}, ["client 1 (east)", "no-*.jsonl", "matches no file"]),
    ({"south": {"data": "empty.jsonl"}}, ["client 2 (south)", "empty.jsonl", "no rows"]),
    ({"south": {"data": "bad.jsonl"}}, ["client 2 (south)", "bad.jsonl:2"]),
    ({"east": {"name": "north"}}, ["the name \"north\"", "[0]"]),
    ({"east": {"budget": 1.5}}, ["client[1].budget of \"east\"", "1.5"]),
    ({"east": {"budget": 0.01}}, ["client 1 (east)", "0.01"]),
    ({"east": {"data": [], "test": []}}, ["client 1 (east)", "no `data`"]),
    ({"south": {"test": "bad.jsonl"}}, ["client[2].held_out of \"south\"", "0.25"]),
])
def test_errors_name_the_client_in_one_line(change, words, data, tiny_model, tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n")
    (tmp_path / "bad.jsonl").write_text(rows("x", 1) + '{"instruction": "q"}\n')
    file = config_file(tmp_path, data, **change)
    one_line(evenkeel("train", file, "--out", tmp_path / "out", *arguments(tiny_model), cwd=tmp_path), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change, words", [
    ({"clients__count": 4}, ["clients.count is 4", "3", "[[clients.client]]"]),
    ({"data__task": "builtin"}, ["clients.client", "files", "builtin"]),
    ({"data__partition__kind": "dirichlet"}, ["data.partition.kind", "rows of its own"]),
    ({"data__files__train": "more.jsonl"}, ["data.files", "clients"]),
])
def test_settings_that_exclude_listed_clients_are_rejected(change, words, data, tiny_model, tmp_path):
    file = config_file(tmp_path, data)
    one_line(evenkeel("train", file, "--out", tmp_path / "out", *arguments(tiny_model, **change)), *words)


def test_scores_per_client_need_clients_with_files(tiny_model, tmp_path):
    one_line(evenkeel("train", CONFIG, "--out", tmp_path / "out", *settings(model__path=tiny_model, evaluate__per_client="true")),
             "evaluate.per_client", "test rows")
