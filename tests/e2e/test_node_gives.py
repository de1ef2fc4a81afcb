"""Tests what a node gives of its own rows: scores of all its test rows or none, scores of single rows by agreement of both
sides, and rounds of a bounded length.
"""

import hashlib
import json

import pytest

from test_federation import Processes, free_port, keygen, node_arguments, wait_for, wait_until
from tiny import lines, succeed, tiny_model, without_seconds  # noqa: F401

WARDS = ["cardiology", "surgery", "neurology"]


def write(file, count, start=0):
    rows = [{"prompt": f"Complaint {start + i}. Which ward?", "completion": WARDS[(start + i) % 3]} for i in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def config_of(folder, model, tests, more="", evaluate="", files=""):
    """Writes the rows of two clients, with these numbers of test rows (None: no file of them), and the config."""
    clients = ""
    for i, count in enumerate(tests):
        write(folder / f"site-{i}.jsonl", 8 + i, 100 * i)
        clients += f'[[clients.client]]\nname = "site-{i}"\ndata = "rows"\nbudget = {[0.5, 1.0][i]}\n'
        if count is not None:
            write(folder / f"site-{i}-test.jsonl", count, 100 * i + 50)
            clients += 'test = "rows"\n'
    (folder / "run.toml").write_text(f"""name = "served"
threads = 1
[model]
path = "{model}"
compute_dtype = "float32"
[data]
task = "files"
files = {{ score = "choice", options = {json.dumps(WARDS)}{files} }}
[method]
name = "fedit"
[train]
rounds = 2
batch_size = 2
accumulation = 1
{more}
[evaluate]
budgets = [1.0]
every = 1
as_exported = false
max_new_tokens = 6
{evaluate}
{clients}""")
    return folder / "run.toml"


class Federation(Processes):
    """A server and its nodes, which are started again with the same keys."""

    def __init__(self, folder, model):
        super().__init__()
        self.folder, self.model = folder, model
        self.keys = keygen(folder, 2) if not (folder / "keys.txt").exists() else [folder / f"site-{i}.pem" for i in range(2)]
        self.address, self.log = f"127.0.0.1:{free_port()}", folder / "serve.log"

    def serve(self, config, *more):
        self.server = self.start("serve", config, "--out", self.folder / "run", "--listen", self.address, "--allow", self.folder / "keys.txt",
                                 "--insecure", *more, log=self.log)

    def node(self, i, *more):
        log = self.folder / f"site-{i}.log"
        rows = ["--data", self.folder / f"site-{i}.jsonl", "--test", self.folder / f"site-{i}-test.jsonl"]
        return self.start(*node_arguments(self.keys[i], self.model, self.address, *rows, *more, least=None), log=log), log

    def ends(self):
        assert wait_for(self.server, self.log) == 0, self.log.read_text() + (self.folder / "site-0.log").read_text()


def test_a_node_with_few_test_rows_trains_and_is_named_in_the_scores(tiny_model, tmp_path):  # noqa: F811
    config, run = config_of(tmp_path, tiny_model, [6, 12], evaluate="per_client = true\nkeep_best = true"), tmp_path / "run"
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        for i in range(2):
            federation.node(i)
        federation.ends()
    reason = "it has 6 different test rows, and gives scores of 10 or more (--min-test-rows)"
    assert f"site-0 gives no scores of its rows: {reason}" in federation.log.read_text()
    assert f"no scores: {reason}" in (tmp_path / "site-0.log").read_text()
    assert all([client["id"] for client in line["clients"]] == [0, 1] for line in lines(run / "rounds.jsonl")), "both train"
    scores = lines(run / "evaluations.jsonl")
    of_all = [line for line in scores if line.get("rows_of") != "own"]
    assert of_all and all(line["missing_clients"] == line["without_scores"] == [0] and line["rows"] == 12 for line in of_all)
    assert {line["client"] for line in scores if line.get("rows_of") == "own"} == {1}
    missing = lines(run / "missing_scores.jsonl")
    assert missing and {(line["client"], line["reason"]) for line in missing} == {(0, f"site-0: {reason}")}
    assert (run / "best.json").exists(), "rounds are compared by the scores that there are"
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config, "--resume")
        for i in range(2):
            federation.node(i)
        federation.ends()
    assert lines(run / "evaluations.jsonl") == scores, "no score is asked for again"


def test_a_run_that_scores_fewer_rows_than_a_node_allows_is_not_joined(tiny_model, tmp_path):  # noqa: F811
    config = config_of(tmp_path, tiny_model, [12, 12], evaluate="limit = 9")
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        node, log = federation.node(0)
        assert wait_for(node, log) == 1
        assert "evenkeel: [config] evaluate.limit is 9 rows, and this node gives scores of 10 or more" in log.read_text()
        wait_until(lambda: "does not join: [config] evaluate.limit is 9 rows" in federation.log.read_text(), federation.log)


def test_scores_of_single_rows_need_both_sides(tiny_model, tmp_path):  # noqa: F811
    config = config_of(tmp_path, tiny_model, [11, 12], evaluate="per_client = true\nitems = true")
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        federation.node(0)
        federation.node(1, "--items")
        federation.ends()
    assert "site-0 gives no scores of single rows, which evaluate.items asks for (node --items)" in federation.log.read_text()
    assert "scores of single rows" in (tmp_path / "site-1.log").read_text()
    assert "scores of single rows" not in (tmp_path / "site-0.log").read_text()
    items = [line for file in sorted((tmp_path / "run/items").iterdir()) for line in lines(file)]
    assert items and {len(line["correct"]) for line in items} == {12}, "of client 1 alone"
    assert {(line["client"], line["client_name"], line["rows_of"]) for line in items} == {(1, "site-1", "own")}


@pytest.mark.parametrize("more, says", [
    ("local_epochs = 100000.0", ["train.local_epochs is 100000", "(--most-steps)"]),
    ("local_epochs = 3.0", ["a round is 12 passes", "up to 10 (--most-steps)"]),
])
def test_a_run_whose_rounds_are_too_long_is_not_joined(more, says, tiny_model, tmp_path):  # noqa: F811
    config = config_of(tmp_path, tiny_model, [12, 12], more)
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        node, log = federation.node(0, *(["--most-steps", 10] if "3.0" in more else []))
        assert wait_for(node, log) == 1
        assert all(word in log.read_text().splitlines()[-1] for word in says), log.read_text()


def test_the_length_of_rounds_is_said_before_joining(tiny_model, tmp_path):  # noqa: F811
    config = config_of(tmp_path, tiny_model, [12, 12])
    with Federation(tmp_path, tiny_model) as federation:
        federation.serve(config)
        for i in range(2):
            federation.node(i)
        federation.ends()
    said = (tmp_path / "site-0.log").read_text()
    assert "2 passes through the model per round (limit: 10000), 2 rounds" in said and "scores of all of them together" in said, said
    kept = "".join(path.read_text() for path in (tmp_path / "run").rglob("*.json*"))
    assert not any(hashlib.sha256(ward.encode()).hexdigest() in kept for ward in WARDS)
    (agreed,) = (tmp_path / "site-0.pem.memory").glob("*-agreed.json")
    first, *asked = lines(agreed)
    assert first["requests"] == [] and {line["request"]["what"].split()[0] for line in asked} == {"train", "score"}


def test_a_second_run_cannot_leave_out_a_row(tiny_model, tmp_path):  # noqa: F811
    """The second run scores 11 of the rows of which the first scored 12."""
    for limit, folder in ((0, "first"), (11, "second")):
        with Federation(tmp_path, tiny_model) as federation:
            federation.serve(config_of(tmp_path, tiny_model, [12, 12], evaluate=f"limit = {limit}"), "--set", "train.rounds=1")
            for i in range(2):
                federation.node(i)
            federation.ends()
        (tmp_path / "run").rename(tmp_path / folder)
    assert len(lines(tmp_path / "first/evaluations.jsonl")) == 1
    assert lines(tmp_path / "second/evaluations.jsonl") == []
    assert "test rows that differ in 1 from those of an earlier run" in (tmp_path / "serve.log").read_text()
