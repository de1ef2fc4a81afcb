"""Tests `evenkeel report` on a study of three arms and three seeds of configs/tiny, one run of which failed.

The folder has the layout that `evenkeel study` writes.
"""

import csv
import io
import json
import math
import re
import shutil
import subprocess

import pandas
import pytest

from hostile import refused
from tiny import CONFIG, lines, sealed, settings, started, succeed, without_seconds

stats = pytest.importorskip("scipy.stats")

ARMS = {"fedit": ["method.name='fedit'"], "ub-smoe": ["method.name='ub-smoe'"], "hetlora": ["method.name='hetlora'"]}
SEEDS = [3, 8, 21]
FAILED = ("hetlora", 8)


def state(folder, **changes):
    runs = [{"arm": arm, "seed": seed, "folder": f"{arm}/seed-{seed}", "state": "failed" if (arm, seed) == FAILED else "done",
             "config": "0" * 64, **({"error": "[io] no space left"} if (arm, seed) == FAILED else {"seconds": 1.5})}
            for arm in ARMS for seed in SEEDS]
    content = {"version": 1, "name": "small_study", "reference": "fedit", "endpoint": "log_likelihood", "seeds": SEEDS,
               "arms": [{"name": arm, "set": words, "config": "0"} for arm, words in ARMS.items()], "common": [], "free": [], "pinned": [],
               "runs": runs, **changes}
    (folder / "study.json").write_text(sealed(content) + "\n")


@pytest.fixture(scope="module")
def study(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies") / "small"
    for arm, words in ARMS.items():
        for seed in SEEDS:
            if (arm, seed) != FAILED:
                succeed("train", CONFIG, "--out", folder / arm / f"seed-{seed}", *[w for word in words for w in ("--set", word)],
                        *settings(model__path=tiny_model, seed=seed, train__rounds=1, evaluate__limit=4, data__limit=40,
                                  evaluate__budgets="[0.25, 1.0]", evaluate__items="true",
                                  evaluate__tasks="['builtin:facts', 'builtin:sizes']"))
    state(folder)
    return folder


@pytest.fixture
def copy(study, tmp_path):
    shutil.copytree(study, tmp_path / "study")
    return tmp_path / "study"


def scores(folder):
    """Returns a dict from (task, budget, reading) to the score after the run's last round."""
    return {(one["task"], one["budget"], one["rank_eval_mode"]): one for one in lines(folder / "evaluations.jsonl")}


def level(folder, budget, reading=""):
    """Returns the mean of the endpoint over tasks, computed from evaluations.jsonl."""
    found = [one["log_likelihood"] for (_, at, mode), one in scores(folder).items() if at == budget and mode == reading]
    return sum(found) / len(found)


def reported(folder, *flags):
    return json.loads(succeed("report", folder, "--format", "json", *flags).stdout)


def arm_of(report, name, mode=""):
    return next(arm for arm in report["served"][0]["arms"] if (arm["arm"], arm["rank_eval_mode"]) == (name, mode))


def test_the_mean_over_single_rows_equals_the_score(study):
    for seed in SEEDS:
        folder = study / f"ub-smoe/seed-{seed}"
        items = lines(folder / "items/round-1.jsonl")
        of_scores = scores(folder)
        assert len(items) == len(of_scores) == 4
        for one in items:
            score = of_scores[one["task"], one["budget"], one["rank_eval_mode"]]
            assert len(one["log_likelihood"]) == len(one["correct"]) == score["rows"] == 4
            assert sum(one["log_likelihood"]) / 4 == pytest.approx(score["log_likelihood"], abs=1e-6)
            assert sum(one["correct"]) / 4 == score["accuracy"] and score["log_likelihood"] < 0


def test_recording_single_rows_changes_nothing_else(study, tiny_model, tmp_path):
    succeed("train", CONFIG, "--out", tmp_path / "run", "--set", "method.name='ub-smoe'",
            *settings(model__path=tiny_model, seed=3, train__rounds=1, evaluate__limit=4, data__limit=40,
                      evaluate__budgets="[0.25, 1.0]", evaluate__tasks="['builtin:facts', 'builtin:sizes']"))
    with_items = study / "ub-smoe/seed-3"
    assert not (tmp_path / "run/items").exists()
    assert without_seconds(lines(tmp_path / "run/evaluations.jsonl")) == without_seconds(lines(with_items / "evaluations.jsonl"))
    weights = [(folder / "adapter/adapter_model.safetensors").read_bytes() for folder in (tmp_path / "run", with_items)]
    assert weights[0] == weights[1]


def test_means_and_paired_differences_equal_those_of_scipy(study):
    report = reported(study)
    for place, budget in enumerate((0.25, 1.0)):
        fedit, smoe = ([level(study / f"{arm}/seed-{seed}", budget) for seed in SEEDS] for arm in ("fedit", "ub-smoe"))
        mean = arm_of(report, "fedit")["budgets"][place]
        assert mean["by_seed"] == pytest.approx(fedit) and mean["n"] == 3
        assert mean["interval_t"] == pytest.approx(list(stats.ttest_1samp(fedit, 0).confidence_interval()))
        difference = arm_of(report, "ub-smoe")["differences"][place]
        test = stats.ttest_rel(smoe, fedit)
        assert difference["p"] == pytest.approx(test.pvalue) and difference["seeds"] == SEEDS
        assert difference["interval_t"] == pytest.approx(list(test.confidence_interval()), abs=1e-12)
        low, high = difference["interval_bca"]
        assert difference["bootstrap_of_items"] and low < difference["mean"] < high and difference["p_holm"] >= difference["p"]
    assert report["served"][0]["comparisons"] == 2 * 3  # hetlora is evaluated in two modes


def test_a_failed_run_is_listed_and_left_out_of_means(study):
    report = reported(study)
    assert report["missing"] == ["hetlora, seed 8: failed: [io] no space left"]
    for mode in "ab":
        arm = arm_of(report, "hetlora", mode)
        assert [budget["n"] for budget in arm["budgets"]] == [2, 2] and arm["budgets"][0]["by_seed"][1] is None
        assert arm["differences"][0]["seeds"] == [3, 21]
        assert arm["differences"][0]["by_seed"][1] == pytest.approx(
            level(study / "hetlora/seed-21", 0.25, mode) - level(study / "fedit/seed-21", 0.25))
    text = succeed("report", study).stdout
    assert "missing: hetlora, seed 8: failed: [io] no space left" in text


def test_text_fits_80_columns_and_names_every_measure(study):
    text = succeed("report", study).stdout
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    for arm in ("ub-smoe", "hetlora (a)", "hetlora (b)"):
        assert re.search(rf"[Dd]ifference of {re.escape(arm)} to fedit", words), text
    for word in ("95 % BCa", "p Holm", "bytes up", "FLOPs", "tokens", "seconds", "wins-losses-ties", "acc %", "inv %", "lik %"):
        assert word in text, word
    assert succeed("report", study).stdout == text  # the bootstrap draws the same numbers each time


def test_csv_has_one_line_per_value(study):
    table = pandas.read_csv(io.StringIO(succeed("report", study, "--format", "csv").stdout), keep_default_na=False)
    assert set(table.study) == {"small_study"} and len(table[table.arm == "hetlora"].seed.unique()) == 2
    key = ["arm", "seed", "served_by", "rank_eval_mode", "budget", "task", "measure"]
    assert not table.duplicated(key).any()
    for (arm, seed), group in table[table.task != ""].groupby(["arm", "seed"]):
        for (task, budget, reading), score in scores(study / arm / f"seed-{seed}").items():
            here = group[(group.task == task) & (group.budget.astype(float) == budget) & (group.rank_eval_mode == reading)]
            found = dict(zip(here.measure, here.value, strict=True))
            for measure in ("log_likelihood", "accuracy", "invalid_rate", "accuracy_likelihood", "majority", "rows"):
                assert found[measure] == score[measure]
    costs = table[table.task == ""]
    rounds = lines(study / "ub-smoe/seed-8/rounds.jsonl")
    of_run = costs[(costs.arm == "ub-smoe") & (costs.seed == 8)].set_index("measure").value
    for measure in ("bytes_up", "bytes_down", "flops", "tokens"):
        assert of_run[measure] == sum(one[measure] for one in rounds) > 0
    assert of_run["seconds"] == pytest.approx(sum(one["seconds"]["round"] for one in rounds))


def test_values_of_json_are_numbers_or_null(study):
    values = json.loads(succeed("report", study, "--format", "json").stdout)["values"]
    scores_of = [one for one in values if one["task"]]
    of_runs = [one for one in values if not one["task"] and not one["measure"].endswith("_per_1000_tokens")]
    assert {one["budget"] for one in scores_of} == {0.25, 1.0} and scores_of and of_runs
    assert all(type(one["budget"]) is float and type(one["top_k"]) is int for one in scores_of)
    assert all(one["budget"] is None and one["top_k"] is None for one in of_runs)
    table = list(csv.DictReader(io.StringIO(succeed("report", study, "--format", "csv").stdout)))
    text = ["" if one["budget"] is None else f"{one['budget']:g}" for one in values]
    assert [one["budget"] for one in table] == text and [one["top_k"] for one in table] == [str(one["top_k"] or "") for one in values]


def test_every_line_of_a_markdown_table_has_the_same_number_of_cells(study):
    text = succeed("report", study, "--format", "md").stdout
    tables = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.M)]
    assert len(tables) == 6 and all(len({line.count("|") for line in table}) == 1 for table in tables)
    assert text.count(", n=2 |") == 4 and text.count(", n=3 |") == 4  # two modes and two arms at two budgets
    assert "**-" not in text  # no mean is the best, because a seed of one arm is missing


def test_latex_tables_compile_with_booktabs(study, tmp_path):
    text = succeed("report", study, "--format", "latex").stdout
    tables = re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S)
    assert len(tables) == 6
    for table in tables:
        columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)[1]
        body = table.split("\\toprule")[1].split("\\bottomrule")[0]
        rows = [row for row in body.replace("\\midrule", "").split("\\\\") if row.strip()]
        assert all(len(re.findall(r"(?<!\\)&", row)) == len(columns) - 1 for row in rows)
    assert "\\mathbf{" not in text and text.count(", n=2$}") == 4
    assert "\\scriptsize $[" in text and "95 \\% t" in text
    typeset(text, tmp_path)


def typeset(text, folder):
    """Compiles tables as a document of one column, where nothing may be wider than the page. Returns the pages of the PDF."""
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed: only the structure was checked")
    document = folder / "tables.tex"
    document.write_text(f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{text}\n\\end{{document}}\n")
    done = subprocess.run(["pdflatex", "-interaction=nonstopmode", "-halt-on-error", document.name], cwd=folder,
                          capture_output=True, text=True)
    assert done.returncode == 0 and (folder / "tables.pdf").exists(), done.stdout[-2000:]
    assert "Overfull" not in done.stdout and "Float too large" not in done.stdout, done.stdout
    return int(re.search(r"\((\d+) pages?,", done.stdout)[1])


LONG = "a_method_with_a_long_name_of_36_char"


@pytest.mark.parametrize("budgets, names", [(1, 2), (4, 9), (8, 3), (8, 12)])
def test_latex_of_many_arms_and_budgets_fits_the_page(study, tmp_path, budgets, names):
    """The study again, as if its arms had long names and more budgets."""
    shutil.copytree(study, tmp_path / "study")
    one = lines(tmp_path / "study/ub-smoe/seed-3/evaluations.jsonl")
    arms = [f"{LONG}-{i}" for i in range(names)]
    for i, arm in enumerate(arms):
        for seed in SEEDS:
            folder = tmp_path / "study" / arm / f"seed-{seed}"
            shutil.copytree(study / f"ub-smoe/seed-{seed}", folder)
            text = [sealed({**score, "budget": (b + 1) / budgets, "log_likelihood": -10.0 - i - seed / (b + 1)})
                    for b in range(budgets) for score in one[:2]]
            (folder / "evaluations.jsonl").write_text("\n".join(text) + "\n")
            shutil.rmtree(folder / "items")
    runs = [{"arm": arm, "seed": seed, "folder": f"{arm}/seed-{seed}", "state": "done", "config": "0" * 64, "seconds": 1.5}
            for arm in arms for seed in SEEDS]
    state(tmp_path / "study", reference=arms[0], arms=[{"name": arm, "set": ["method.name=ub-smoe"]} for arm in arms], runs=runs)
    assert typeset(succeed("report", tmp_path / "study", "--format", "latex").stdout, tmp_path) >= 1
    assert max(map(len, succeed("report", tmp_path / "study").stdout.splitlines())) <= 80
    page = succeed("report", *[tmp_path / "study" / f"{arm}/seed-{SEEDS[0]}" for arm in arms]).stdout
    assert max(map(len, page.splitlines())) <= 80


def test_another_endpoint_and_tables_of_single_runs_can_be_reported(study):
    report = reported(study, "--endpoint", "accuracy")
    assert report["endpoint"] == "accuracy" and "log_likelihood" in arm_of(report, "fedit")["budgets"][0]["other_measures"]
    table = succeed("report", study, "--table", "accuracy").stdout
    assert "ub-smoe/seed-21" in table and "hetlora/seed-8" not in table
    page = succeed("report", study, "--format", "html").stdout
    assert page.lower().startswith("<!doctype html>") and "fedit/seed-3" in page


def test_a_report_can_be_of_one_task_at_one_budget(study):
    whole = reported(study)["served"][0]
    task, budget = whole["tasks"][-1], whole["arms"][0]["budgets"][-1]["budget"]
    report = reported(study, "--task", task, "--budget", budget)
    assert report["served"][0]["tasks"] == [task]
    assert [b["budget"] for b in arm_of(report, "fedit")["budgets"]] == [budget]
    assert f"only of tasks: {task}" in succeed("report", study, "--task", task).stdout.replace("\n", " ")
    refused("report", study, "--task", "poems", says=["poems", task])
    refused("report", study, "--budget", 0.3, says=["0.3", f"{budget:g}"])
    refused("report", study, "--task", task, "--format", "html", says=["--task", "--format html"])
    refused("report", study, "--budget", budget, "--table", "runs", says=["--budget", "--table"])


def test_run_folders_alone_are_grouped_by_their_configs(study):
    folders = [study / f"{arm}/seed-{seed}" for arm in ("fedit", "ub-smoe") for seed in SEEDS]
    alone = json.loads(succeed("report", *folders, "--format", "json").stdout)
    together = reported(study)
    assert alone["reference"] == "fedit" and alone["seeds"] == SEEDS and alone["missing"] == []
    for arm in ("fedit", "ub-smoe"):
        assert arm_of(alone, arm)["budgets"] == arm_of(together, arm)["budgets"]
    assert max(map(len, succeed("report", *folders, "--endpoint", "log_likelihood").stdout.splitlines())) <= 80


def test_an_incomplete_study_is_reported_and_one_with_a_misplaced_run_is_refused(copy, tmp_path):
    shutil.rmtree(copy / "ub-smoe/seed-3")
    (copy / "fedit/seed-21/rounds.jsonl").write_text("{}\n")
    shutil.rmtree(copy / "fedit/seed-8/items")
    report = reported(copy)
    assert any("ub-smoe, seed 3" in line and "holds no run" in line for line in report["missing"])
    assert any("fedit, seed 21" in line and "rounds.jsonl" in line for line in report["missing"])
    difference = arm_of(report, "ub-smoe")["differences"][0]
    assert difference["seeds"] == [8] and difference["interval_t"] is None and difference["p_holm"] is None
    assert any("fewer than two seeds" in sentence for sentence in report["served"][0]["conclusions"])
    shutil.copytree(copy / "ub-smoe/seed-8", copy / "ub-smoe/seed-3")
    refused("report", copy, says=["seed-3", "seed 8", "another study"])
    refused("report", copy, copy / "ub-smoe/seed-8", says=["a study is reported alone"])
    refused("report", copy, "--endpoint", "f1", "--table", "runs", says=["--table"])


def test_intervals_use_seeds_only_if_single_rows_are_missing(copy):
    full = reported(copy)
    shutil.rmtree(copy / "ub-smoe/seed-8/items")
    report = reported(copy)
    one, other = (arm_of(r, "ub-smoe")["differences"][0] for r in (full, report))
    assert one["mean"] == other["mean"] and one["interval_t"] == other["interval_t"]
    assert one["interval_bca"] != other["interval_bca"] and not other["bootstrap_of_items"]
    assert any("seeds only" in note for note in report["notes"])


def test_a_damaged_file_of_single_rows_is_named_in_the_error(copy):
    file = copy / "fedit/seed-3/items/round-1.jsonl"
    file.write_text(file.read_text().replace("0", "1", 1))
    refused("report", copy, says=["round-1.jsonl"])


def test_a_study_without_finished_runs_is_refused(copy):
    state(copy, runs=[{"arm": arm, "seed": seed, "folder": f"{arm}/seed-{seed}", "state": "planned", "config": "0" * 64}
                      for arm in ARMS for seed in SEEDS])
    refused("report", copy, says=["no run is done", "not run yet"])


def test_records_without_log_likelihood_need_another_endpoint(study, tmp_path):
    """The records have scores without the log-likelihood of the correct answer, as with evaluate.likelihood = false."""
    old = tmp_path / "old"
    shutil.copytree(study, old)
    for file in old.glob("*/*/evaluations.jsonl"):
        whole = [{k: v for k, v in one.items() if k not in ("log_likelihood", "checksum")} for one in lines(file)]
        file.write_text("".join(sealed(one) + "\n" for one in whole))
    refused("report", old, says=["log_likelihood", "no task of the runs has it", "accuracy"])
    assert math.isfinite(arm_of(reported(old, "--endpoint", "accuracy"), "fedit")["budgets"][0]["mean"])


def test_the_output_of_evenkeel_study_can_be_reported(tiny_model, tmp_path):
    text = CONFIG.read_text().replace('"models/tiny"', f'"{tiny_model}"').replace("rounds = 3", "rounds = 1").replace("limit = 90", "limit = 30")
    (tmp_path / "base.toml").write_text(text)
    arms = "".join(f'[[study.arm]]\nname = "{arm}"\nset = {json.dumps(ARMS[arm])}\n' for arm in ("ub-smoe", "fedit"))
    (tmp_path / "pair.toml").write_text(f'[study]\nbase = "base.toml"\nseeds = [4, 7]\nreference = "fedit"\n'
                                        f'set = ["method.gate_norm=renorm_selected"]\n{arms}')
    done = started("study", tmp_path / "pair.toml", "--out", tmp_path / "out", "--set", "evaluate.items=true")
    assert done.returncode == 0, done.stderr
    report = reported(tmp_path / "out")
    assert report["missing"] == [] and report["notes"] == [] and report["reference"] == "fedit" and report["name"] == "pair"
    for difference in arm_of(report, "ub-smoe")["differences"]:
        assert difference["seeds"] == [4, 7] and difference["bootstrap_of_items"] and len(difference["interval_bca"]) == 2


def test_a_paper_table_is_printed_next_to_the_results_of_the_study(study):
    """hetlora and ub-smoe are arms of the paper's table 4. Of the table's four budgets the study has 0.25 and 1."""
    text = succeed("report", study, "--table", "paper:4").stdout
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    at_quarter = rows.index(next(row for row in rows if row[0] == "0.25"))
    found = {row[-4 if len(row) > 4 else 0]: row for row in rows[at_quarter:at_quarter + 8]}  # seven arms, one of them in two modes
    values = [scores(study / "ub-smoe" / f"seed-{seed}") for seed in SEEDS]
    ours = sum(sum(one["accuracy"] for (_, budget, _), one in of.items() if budget == 0.25) / 2 for of in values) / len(SEEDS)
    assert f"{ours:.4f}" in " ".join(found["ub-smoe"]) and "0.3359" in found["ub-smoe"][-3]
    for mode in "ab":
        assert found[f"hetlora ({mode})"][-1] == "2", "the failed run is left out of the mean"
        of_mode = [scores(study / "hetlora" / f"seed-{seed}") for seed in SEEDS if ("hetlora", seed) != FAILED]
        mean = sum(sum(one["accuracy"] for (_, budget, at), one in of.items() if budget == 0.25 and at == mode) / 2 for of in of_mode) / 2
        assert f"{mean:.4f}" in " ".join(found[f"hetlora ({mode})"])
    words = re.sub(r"\s+", " ", text)
    assert "Rank evaluation mode of rank methods: b: the whole adapter" in words and "and a: the adapter cut to the budget's rank" in words
    assert "(rank methods in mode b): the paper's order was" in words and "(rank methods in mode a): the paper's order was" in words
    assert found["flora"][-2:] == ["-", "0"], "the study has no such arm"
    assert "the paper's order was" in re.sub(r"\s+", " ", text)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert succeed("report", study, "--table", "paper:4", "--format", "md").stdout.count("|") > 50


@pytest.mark.parametrize("table", ["1", "2", "4", "13-flops", "15-upload", "figure-3", "figure-6"])
def test_tables_of_the_paper_are_typeset(study, tmp_path, table):
    text = succeed("report", study, "--table", f"paper:{table}", "--format", "latex").stdout
    assert "\\toprule" in text and "$\\pm$" in text and "+-" not in text
    assert typeset(text, tmp_path) >= 1


def test_figures_of_the_paper_are_those_of_the_records(study):
    """Figures 6 and 7 of ub-smoe: phi against utilisation, and what is said of the direction."""
    rounds = [lines(study / f"ub-smoe/seed-{seed}/rounds.jsonl")[-1] for seed in SEEDS]
    phi = [[value for layer in one["layers"] for value in one["diagnostics"][f"{layer}.phi"]] for one in rounds]
    use = [[value for layer in one["utilization"] for value in layer] for one in rounds]
    slopes = [stats.linregress(u, p).slope for u, p in zip(use, phi, strict=True)]
    pearson = [stats.pearsonr(u, p)[0] for u, p in zip(use, phi, strict=True)]
    for table, ours in (("figure-7", slopes), ("figure-6", pearson)):
        text = succeed("report", study, "--table", f"paper:{table}").stdout
        mean, interval = sum(ours) / 3, stats.ttest_1samp(ours, 0).confidence_interval()
        last = next(line for line in text.splitlines() if line.startswith("last round "))
        assert f"{mean:.4f} +-{(interval.high - interval.low) / 2:.4f}" in last and last.split()[-1] == "3"
        assert all(len(line) <= 80 for line in text.splitlines()) and "round 1" in text
    found = "confirmed" if interval.high < 0 else "contradicted" if interval.low > 0 else "not shown"
    assert f"ub-smoe is below 0, as in the paper, was {found}" in " ".join(text.split())


def test_table_8_reads_the_alignment_that_was_saved(study, copy):
    text = succeed("report", study, "--table", "paper:8").stdout
    assert "not compared" in text and "pg-alignment.jsonl" in text
    known = []
    for seed in SEEDS:
        done = succeed("pg-alignment", "--run", copy / f"ub-smoe/seed-{seed}", "--limit", "4", "--json")
        (copy / f"ub-smoe/seed-{seed}/pg-alignment.jsonl").write_text(done.stdout)
        known.append(json.loads(done.stdout.splitlines()[-1])["cosine"])  # of all layers, none where no expert was idle
    text = succeed("report", copy, "--table", "paper:8").stdout
    line = next(line for line in text.splitlines() if line.startswith("all layers"))
    assert line.split()[-1] == str(sum(cosine is not None for cosine in known))
    (copy / "ub-smoe/seed-3/pg-alignment.jsonl").write_text('{"layer": 3}\n')
    refused("report", copy, "--table", "paper:8", says=["pg-alignment.jsonl, line 1", "layer"])


def test_upload_bytes_in_paper_table_15_are_those_of_rounds_jsonl(study):
    """Table 15 shows the bytes that a client sends per round, as the mean over the budgets of the evaluation."""
    text = succeed("report", study, "--table", "paper:15-upload").stdout
    def mean_at(seed, budget):
        found = [client["bytes_up"] for line in lines(study / f"ub-smoe/seed-{seed}/rounds.jsonl") for client in line["clients"] if client["budget"] == budget]
        return sum(found) / len(found) / 2**20 if found else None
    known = [[mean_at(seed, budget) for budget in (0.25, 1.0)] for seed in SEEDS]
    complete = [sum(pair) / 2 for pair in known if None not in pair]
    line = next(line for line in text.splitlines() if "ub-smoe" in line and "370" in line)
    assert line.split()[-1] == str(len(complete))
    assert not complete or f"{sum(complete) / len(complete):.2f}" in line


@pytest.mark.parametrize("words, said", [
    (["--table", "paper:99"], ["paper:99", "paper:2"]), (["--table", "paper:"], ["paper:", "paper:2"]),
    (["--table", "paper:4", "--format", "csv"], ["paper:4", "text, md or latex"]),
    (["--table", "paper:4", "--html", "page.html"], ["paper:4", "--html"]),
    (["--table", "paper:4", "--endpoint", "f1"], ["--table", "--endpoint"]), (["--table", "paper:19"], ["paper:19", "sqrt", "rho"]),
])
def test_a_table_that_the_study_cannot_fill_is_refused(study, tmp_path, words, said):
    refused("report", study, *words, says=said, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_paper_table_of_a_single_run_is_refused(study):
    refused("report", study / "fedit/seed-3", "--table", "paper:4", says=["study.json"])


def test_doctor_estimates_memory_and_disk_of_a_study(tiny_model, tmp_path):
    (tmp_path / "small.toml").write_text(f'[study]\nbase = "{CONFIG}"\nseeds = [1, 2]\nset = ["method.gate_norm=renorm_selected"]\n'
                                         '[[study.arm]]\nname = "fedit"\nset = ["method.name=fedit"]\n'
                                         '[[study.arm]]\nname = "ub-smoe"\nset = ["method.name=ub-smoe"]\n')
    done = succeed("doctor", "--config", tmp_path / "small.toml", *settings(model__path=tiny_model, train__rounds=1, evaluate__limit=1))
    assert "2 arms x 2 seeds" in done.stdout and "memory" in done.stdout and "disk" in done.stdout
    refused("doctor", "--config", tmp_path / "small.toml", "--model", tiny_model, says=["is a study", "--model"])


def test_gating_that_is_not_equal_is_named_in_every_format(study, tmp_path):
    """The model renormalises its gates. An arm without renormalised gates is compared with one that has them."""
    folders = {}
    for gates in ("renorm_selected", "softmax_all"):
        for seed in SEEDS[:2]:
            folders[gates, seed] = tmp_path / f"{gates}-{seed}"
            config = (study / f"ub-smoe/seed-{seed}/config.toml").read_text()
            (tmp_path / "config.toml").write_text(config)
            succeed("train", tmp_path / "config.toml", "--out", folders[gates, seed], "--set", f"method.gate_norm={gates}")
    words = {form: re.sub(r"\s+", " ", succeed("report", *folders.values(), "--format", form).stdout)
             for form in ("text", "md", "latex", "csv", "json", "html")}
    for form in ("text", "md", "latex"):
        assert "the two also differ in gating (not renormalised; " in words[form].replace("\\_", "_"), form
        assert "Arms differ in gating: renormalised (" in words[form].replace("\\_", "_"), form
    assert "gating: not renormalised (" in words["csv"]
    assert '"what": "gating"' in words["json"] and '"what":"gating"' in words["html"]


def test_run_folders_have_the_same_comparison_in_every_format(study):
    folders = [study / f"{arm}/seed-{seed}" for arm in ("fedit", "ub-smoe") for seed in SEEDS]
    report = json.loads(succeed("report", *folders, "--format", "json").stdout)
    sentence = report["served"][0]["conclusions"][0]
    for form in ("text", "md", "latex"):
        text = re.sub(r"\s+", " ", succeed("report", *folders, "--format", form).stdout)
        assert sentence in text.replace("\\_\\allowbreak{}", "_"), form
        assert "accuracy, percent of rows, by budget" in text.lower(), "the tables of the single runs follow"
    opening = succeed("report", *folders).stdout
    assert opening.index("log-likelihood of the correct answer") < opening.index("accuracy, percent of rows")
