"""Tests what a report says of the cost of training at each K, with a real study: two arms, two seeds, clients of four budgets.

ub-smoe trains its clients with K = 1, 2, 4 and 8. flexlora gives them unequal ranks, and K = 8 to all.
"""

import io
import json
import re

import pandas
import pytest

from test_study_report import typeset
from tiny import CONFIG, lines, page_data, settings, started, succeed

stats = pytest.importorskip("scipy.stats")

ARMS, SEEDS, TOP_KS = ("ub-smoe", "flexlora"), (1, 2), (1, 2, 4, 8)
UNITS = {"M": 1e6, "G": 1e9}
BUDGETS = {0.125: 1, 0.25: 2, 0.5: 4, 1.0: 8}


@pytest.fixture(scope="module")
def study(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    arms = "".join(f'[[study.arm]]\nname = "{arm}"\nset = ["method.name={arm}"]\n' for arm in ARMS)
    (folder / "costs.toml").write_text(f'[study]\nbase = "{CONFIG}"\nseeds = {list(SEEDS)}\nset = ["method.gate_norm=renorm_selected"]\n{arms}')
    words = settings(model__path=tiny_model, clients__participation=1.0, train__rounds=2, data__limit=40, evaluate__limit=1,
                     evaluate__budgets=list(BUDGETS), evaluate__tasks="['builtin:facts']")
    done = started("study", folder / "costs.toml", "--out", folder / "out", *words)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def clients(study, arm, seed):
    return [client for line in lines(study / arm / f"seed-{seed}/rounds.jsonl") for client in line["clients"]]


def cost(study, arm, seed, key, measure):
    """Returns the FLOPs or seconds of 1,000 tokens of the clients whose `key` (name, value) it is, over both rounds."""
    found = [client for client in clients(study, arm, seed) if client[key[0]] == key[1]]
    return 1000 * sum(client[measure] for client in found) / sum(client["tokens"] for client in found)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_the_records_have_clients_of_four_k(study):
    for seed in SEEDS:
        assert {client["top_k"] for client in clients(study, "ub-smoe", seed)} == set(TOP_KS)
        assert {client["top_k"] for client in clients(study, "flexlora", seed)} == {8}
        assert all(client["seconds"] > 0 for client in clients(study, "ub-smoe", seed))


def test_flops_and_seconds_at_each_k_are_those_of_the_records(study):
    report = json.loads(succeed("report", study, "--format", "json").stdout)
    of_arm = {entry["arm"]: {one["top_k"]: one for one in entry["by_top_k"]} for entry in report["costs"]}
    for arm in ARMS:
        assert list(of_arm[arm]) == list(TOP_KS)
        for k, one in of_arm[arm].items():
            if arm == "flexlora" and k < 8:
                assert one["runs"] == 0 and one["flops_per_1000_tokens"] is None and one["seconds_share"] is None
                continue
            flops, seconds = ([cost(study, arm, seed, ("top_k", k), measure) for seed in SEEDS] for measure in ("flops", "seconds"))
            full = [cost(study, arm, seed, ("top_k", 8), "seconds") for seed in SEEDS]
            assert one["runs"] == 2
            assert one["flops_per_1000_tokens"] == pytest.approx(mean(flops))
            assert one["seconds_per_1000_tokens"] == pytest.approx(mean(seconds))
            assert one["interval_t"] == pytest.approx(list(stats.ttest_1samp(seconds, 0).confidence_interval()), abs=1e-12)
            assert one["seconds_share"] == pytest.approx(mean(part / whole for part, whole in zip(seconds, full, strict=True)))
    shares = [of_arm["ub-smoe"][k]["flops_share"] for k in TOP_KS]
    assert shares == sorted(shares) and shares[-1] == 1


def test_csv_has_the_cost_of_every_budget(study):
    table = pandas.read_csv(io.StringIO(succeed("report", study, "--format", "csv").stdout), keep_default_na=False)
    assert not table.duplicated(["arm", "seed", "served_by", "rank_eval_mode", "budget", "task", "measure"]).any()
    for arm in ARMS:
        for seed in SEEDS:
            for budget, k in BUDGETS.items():
                here = table[(table.arm == arm) & (table.seed == seed) & (table.task == "") & (table.budget.astype(str) == f"{budget:g}")]
                found = dict(zip(here.measure, here.value, strict=True))
                for name, measure in (("flops_per_1000_tokens", "flops"), ("seconds_per_1000_tokens", "seconds")):
                    assert found[name] == pytest.approx(cost(study, arm, seed, ("budget", budget), measure))
                assert set(here.top_k.astype(str)) == {str(k if arm == "ub-smoe" else 8)}


def rows_of(text, arm):
    """Returns the lines of an arm in the table by K, split at columns: K, FLOPs, percent, seconds, percent, runs."""
    block = text.split("cost of 1,000 tokens")[1].splitlines()
    start = next(i for i, line in enumerate(block) if line.startswith(f"{arm} "))
    rows = [re.split(r"\s{2,}", line.strip()) for line in block[start:start + len(TOP_KS)]]
    return [rows[0][1:]] + rows[1:]


def test_table_13_shows_measured_seconds_next_to_flops(study):
    text = succeed("report", study, "--table", "paper:13-flops").stdout
    assert max(map(len, text.splitlines())) <= 80
    for k, row in zip(TOP_KS, rows_of(text, "ub-smoe"), strict=True):
        flops, seconds = ([cost(study, "ub-smoe", seed, ("top_k", k), measure) for seed in SEEDS] for measure in ("flops", "seconds"))
        full = [[cost(study, "ub-smoe", seed, ("top_k", 8), measure) for seed in SEEDS] for measure in ("flops", "seconds")]
        assert row[0] == str(k) and row[-1] == "2"
        number, unit = row[1].split()
        assert float(number) * UNITS[unit] == pytest.approx(mean(flops), rel=1e-3)
        assert float(row[2]) == pytest.approx(100 * mean(a / b for a, b in zip(flops, full[0], strict=True)), abs=0.06)
        assert float(row[3].split()[0]) == pytest.approx(mean(seconds), rel=1e-3) and "+-" in row[3]
        assert float(row[4]) == pytest.approx(100 * mean(a / b for a, b in zip(seconds, full[1], strict=True)), abs=0.06)
    for k, row in zip(TOP_KS[:3], rows_of(text, "flexlora")[:3], strict=True):
        assert row == [str(k), "no client", "-", "-", "-", "0"]
    assert rows_of(text, "flexlora")[3][0] == "8" and "no client" not in rows_of(text, "flexlora")[3]


def test_a_report_of_a_study_leaves_out_the_k_that_an_arm_does_not_have(study):
    text = succeed("report", study).stdout
    assert max(map(len, text.splitlines())) <= 80 and "% of K=8" in text
    assert "no client" not in text
    assert [row[0] for row in rows_of(text, "ub-smoe")] == ["1", "2", "4", "8"]
    assert re.search(r"^flexlora +8 ", text.split("cost of 1,000 tokens")[1], re.M)


@pytest.mark.parametrize("words", [[], ["--table", "paper:13-flops"], ["--table", "paper:figure-3"]])
def test_the_table_is_in_every_format(study, tmp_path, words):
    assert "1,000 tokens" in succeed("report", study, "--format", "md", *words).stdout
    latex = succeed("report", study, "--format", "latex", *words).stdout
    assert "1,000 tokens" in latex and "\\% of K=8" in latex
    typeset(latex, tmp_path)


def test_the_page_has_the_costs_of_every_k(study):
    data = page_data(succeed("report", study, "--format", "html").stdout)
    report = json.loads(succeed("report", study, "--format", "json").stdout)
    assert [arm["name"] for arm in data["arms"]] == [arm["arm"] for arm in report["costs"]] == list(ARMS)
    for arm, costs, reported in zip(ARMS, data["costs"]["arms"], report["costs"], strict=True):
        assert [one["top_k"] for one in costs["by_top_k"]] == [one["top_k"] for one in reported["by_top_k"] if one["runs"]]
        for one in costs["by_top_k"]:
            for measure in ("flops", "seconds"):
                per_seed = [cost(study, arm, seed, ("top_k", one["top_k"]), measure) for seed in SEEDS]
                assert one[measure] == pytest.approx(mean(per_seed), rel=1e-5)
            assert [one["low"], one["high"]] == pytest.approx(list(stats.ttest_1samp(per_seed, 0).confidence_interval()), rel=1e-4, abs=1e-9)
        totals = [reported[measure["name"]] for measure in data["costs"]["measures"]]
        assert costs["means"] == [None if total is None else pytest.approx(total, rel=1e-5) for total in totals]


def test_the_clients_of_a_run_have_the_seconds_of_its_last_round(study):
    one = succeed("report", study / "flexlora/seed-1", "--table", "clients").stdout
    last = {client["id"]: client for client in lines(study / "flexlora/seed-1/rounds.jsonl")[-1]["clients"]}
    assert "seconds" in one and all(f"{client['seconds']:.2f}" in one for client in last.values())
