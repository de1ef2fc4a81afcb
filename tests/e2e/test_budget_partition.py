"""Tests data.partition.kind = "budget" in runs: whose rows a client gets, that every key of it changes a run, and which
keys do not change the rows of a client."""

import json
from collections import Counter

import pytest

from test_row_numbers import KINDS, partition_of, rows_of, train, write
from tiny import evenkeel, lines, one_line, settings, without_seconds

BUDGETS = [0.5, 0.25, 1.0, 0.25]  # of four clients; KINDS are three groups


def run(model, tmp_path, name, partition, **changes):
    file, test = tmp_path / "rows.jsonl", tmp_path / "test.jsonl"
    if not file.exists():
        write(file, rows_of(60)), write(test, rows_of(6, first=90))
    train(model, tmp_path / name, [file], **{
        "clients__count": 4, "clients__budgets": json.dumps(BUDGETS), "data__files__test": json.dumps([str(test)]), "evaluate__limit": 1,
        "data__partition": f'{{ kind = "budget", {partition} }}', "train__optimizer__lr": 0.01, **changes})
    return tmp_path / name


def sites(run, rows):
    """Returns how many rows of each site every client has."""
    return [Counter(rows[number]["site"] for number in numbers) for numbers in partition_of(run)["clients"]]


def test_the_clients_of_a_budget_have_the_share_of_their_groups(tiny_model, tmp_path):
    made, rows = run(tiny_model, tmp_path, "run", "share = 0.8"), rows_of(60)
    found = sites(made, rows)
    for budget, kind in zip([0.25, 0.5, 1.0], sorted(KINDS)):
        own = [count[kind] for count, of_client in zip(found, BUDGETS) if of_client == budget]
        others = [count[kind] for count, of_client in zip(found, BUDGETS) if of_client != budget]
        assert sum(own) == 16 and sum(others) == 4 and max(own) - min(own) <= 1 and max(others) - min(others) <= 1
    assert sorted(sum(partition_of(made)["clients"], [])) == list(range(60))


def test_every_key_of_it_changes_a_run(tiny_model, tmp_path):
    order = json.dumps([KINDS[1], KINDS[2], KINDS[0]])
    runs = [run(tiny_model, tmp_path, name, keys) for name, keys in
            (("plain", "share = 0.8"), ("share", "share = 0.6"), ("groups", f"share = 0.8, groups = {order}"), ("key", "share = 0.8, key = 'label'"))]
    runs.append(run(tiny_model, tmp_path, "kind", "share = 0.8", data__partition='{ kind = "iid", share = 0.8 }'))
    records = [json.dumps(without_seconds(lines(one / "rounds.jsonl"))) for one in runs]
    adapters = [(one / "adapter/adapter_model.safetensors").read_bytes() for one in runs]
    assert records[0] == records[3] and adapters[0] == adapters[3], "label is the default of key"
    assert len(set(records)) == 4 and len(set(adapters)) == 4
    first = [count.most_common(1)[0][0] for count in sites(runs[2], rows_of(60))]
    assert first == [KINDS[2], KINDS[1], KINDS[0], KINDS[1]], "the smallest budget has the first group"


def test_the_rows_of_a_client_do_not_depend_on_keys_of_other_things(tiny_model, tmp_path):
    expected = partition_of(run(tiny_model, tmp_path, "plain", "share = 0.8"))["clients"]
    for name, changes in (("part", {"clients__participation": 0.5}), ("method", {"method__name": "ub-smoe"}), ("rounds", {"train__rounds": 2}),
                          ("batch", {"train__batch_size": 1}), ("limit", {"evaluate__limit": 2}), ("parallel", {"clients__parallel": 2})):
        assert partition_of(run(tiny_model, tmp_path, name, "share = 0.8", **changes))["clients"] == expected, name
    assert partition_of(run(tiny_model, tmp_path, "seed", "share = 0.8", seed=99))["clients"] != expected


@pytest.mark.parametrize("partition, changes, says", [
    ("share = 0.8", {"clients__budgets": "[1, 1, 1, 1]"}, ["all clients have budget 1", "two budgets or more"]),
    (f"groups = {json.dumps(KINDS[:2])}", {}, [f'groups lacks "{KINDS[2]}"', "all groups, or none"]),
    (f"groups = {json.dumps([*KINDS, 'x'])}", {}, ['groups holds "x"', "no training row"]),
    ("share = 1.0", {"clients__budgets": "[0.125, 0.25, 0.5, 1]"}, ["client 3", "no row"]),
])
def test_a_partition_that_is_impossible_is_refused(partition, changes, says, tiny_model, tmp_path):
    file = write(tmp_path / "rows.jsonl", rows_of(60))
    words = settings(**{"model__path": tiny_model, "method__name": "fedit", "clients__count": 4, "clients__budgets": json.dumps(BUDGETS),
                        "data__task": "files", "data__limit": 0, "data__files__train": json.dumps([str(file)]), "data__files__label": "site",
                        "data__files__score": "choice", "data__files__options": json.dumps(KINDS),
                        "data__partition": f'{{ kind = "budget", {partition} }}', **changes})
    one_line(evenkeel("train", "configs/tiny/train.toml", "--out", tmp_path / "run", *words), *says)
    assert not (tmp_path / "run").exists()
