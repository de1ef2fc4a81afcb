"""Tests the numbers of the report page: those in its data, and those that its scripts draw, with studies of 2, 8 and 40 seeds.

The scripts run under node, or in Chromium if there is no node.
"""

import json
import math
import re
import shutil
import statistics
import subprocess

import pytest

from synthetic_study import synthetic_run, synthetic_study
from test_report_page import CHROMIUM, opened
from tiny import CONFIG, lines, page_data, settings, succeed

stats = pytest.importorskip("scipy.stats")

ARMS = ("fedit", "ub-smoe", "hetlora")
NODE = shutil.which("node")
# What stands for a browser: no chart is drawn.
BROWSER = """
const document = {
  getElementById: () => ({textContent: require('fs').readFileSync(0, 'utf8')}),
  createElement: () => ({getContext: () => ({measureText: (text) => ({width: 7 * text.length})})})
};
"""


@pytest.fixture(scope="module")
def templates(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("templates")
    for arm in ARMS:
        succeed("train", CONFIG, "--out", folder / arm, *settings(model__path=f'"{tiny_model}"', seed=1, method__name=arm, train__rounds=2,
                                                                  data__limit=40, evaluate__limit=2, evaluate__before="true", evaluate__every=1,
                                                                  evaluate__tasks="['builtin:facts', 'builtin:sizes']"))
    return {arm: folder / arm for arm in ARMS}


@pytest.fixture(scope="module")
def study(templates, tmp_path_factory):
    """Returns a function that makes a study with seeds 1, 2, ... and returns its folder."""
    made = {}

    def of(seeds):
        if seeds not in made:
            made[seeds] = synthetic_study(tmp_path_factory.mktemp("studies") / f"seeds-{seeds}", templates, range(1, seeds + 1))
        return made[seeds]

    return of


def page_of(*folders):
    return succeed("report", *folders, "--format", "html").stdout


def drawn(page, expression, folder):
    """Returns the value of a JavaScript expression over the functions of the page."""
    if NODE is None:
        if CHROMIUM is None:
            pytest.skip("neither node nor Chromium: apt-get install nodejs")
        return opened(page, 1440, folder, f"addEventListener('load', () => parent.postMessage(JSON.stringify({expression}), '*'));")
    data, script = re.search(r'id="data">(.*?)</script>\s*<script>(.*?)</script>', page, re.S).groups()
    (folder / "page.js").write_text(BROWSER + script.partition("\nfor (const draw")[0] + f"\nconsole.log(JSON.stringify({expression}));\n")
    done = subprocess.run([NODE, folder / "page.js"], input=data, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def view_of(data, measure, task=""):
    return next(view for view in data["views"] if (view["measure"], view["task"]) == (measure, task))


def recorded(folder, measure, budget, mode="", task=None, last=2):
    """Returns the mean of a measure over tasks after round `last`, from evaluations.jsonl."""
    found = [one[measure] for one in lines(folder / "evaluations.jsonl")
             if one["round"] == last and one["budget"] == budget and one.get("rank_eval_mode", "") == mode and task in (None, one["task"])]
    return statistics.mean(found)


def interval(values):
    """Returns mean, low and high of Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return [statistics.mean(values) - half, statistics.mean(values), statistics.mean(values) + half]


def close(values, digits=1e-5):
    return pytest.approx(values, rel=digits, abs=2e-6)


def ends(one):
    return [one.get("low"), one.get("mean"), one.get("high")]


@pytest.mark.parametrize("seeds", [2, 8, 40])
def test_the_page_has_the_means_and_differences_of_the_json_report(study, seeds):
    folder = study(seeds)
    data, report = page_data(page_of(folder)), json.loads(succeed("report", folder, "--format", "json").stdout)
    served = view_of(data, "log_likelihood")["served"]["run"]
    assert served["conclusions"] == report["served"][0]["conclusions"] and served["comparisons"] == report["served"][0]["comparisons"]
    assert [data["arms"][arm["arm"]]["name"] for arm in served["arms"]] == [arm["arm"] for arm in report["served"][0]["arms"]]
    for arm, reported in zip(served["arms"], report["served"][0]["arms"], strict=True):
        assert arm["mode"] == reported["rank_eval_mode"]
        for mean, expected, by_budget in zip(arm["means"], reported["budgets"], arm["seeds"], strict=True):
            low, high = expected["interval_t"]
            assert ends(mean) == close([low, expected["mean"], high]) and mean["n"] == seeds
            assert by_budget == close(expected["by_seed"])
        for difference, expected in zip(arm["differences"], reported["differences"], strict=True):
            low, high = expected["interval_t"]
            assert ends(difference) == close([low, expected["mean"], high]) and difference["n"] == seeds
            assert (difference["p"], difference["p_holm"]) == (close(expected["p"]), close(expected["p_holm"]))


@pytest.mark.parametrize("seeds", [2, 8, 40])
def test_intervals_of_every_measure_and_task_are_those_of_student(study, seeds):
    folder = study(seeds)
    data = page_data(page_of(folder))
    budgets = [one["budget"] for one in data["budgets"]]
    assert len(data["views"]) == 3 * 5, "five measures, of two tasks and their mean"
    for view in data["views"]:
        for arm in view["served"]["run"]["arms"]:
            values = {name: [[recorded(folder / name / f"seed-{seed}", view["measure"], budget, mode, view["task"] or None) for budget in budgets]
                             for seed in range(1, seeds + 1)] for name, mode in ((data["arms"][arm["arm"]]["name"], arm["mode"]), ("fedit", ""))}
            mine, other = values[data["arms"][arm["arm"]]["name"]], values["fedit"]
            for place in range(len(budgets)):
                assert ends(arm["means"][place]) == close(interval([one[place] for one in mine]))
            assert ends(arm["over_budgets"]) == close(interval([statistics.mean(one) for one in mine]))
            if data["arms"][arm["arm"]]["name"] == "fedit":
                continue
            for place in range(len(budgets)):
                assert ends(arm["differences"][place]) == close(interval([a[place] - b[place] for a, b in zip(mine, other)]))
            assert ends(arm["difference_over_budgets"]) == close(interval([statistics.mean(a) - statistics.mean(b) for a, b in zip(mine, other)]))


@pytest.mark.parametrize("seeds", [2, 40])
def test_the_scripts_draw_the_numbers_of_the_data(study, tmp_path, seeds):
    page = page_of(study(seeds))
    data = page_data(page)
    for measure, factor in (("log_likelihood", 1), ("accuracy", 100)):
        at = f"{{measure: measureOf('{measure}'), task: '', routing: 'run'}}"
        arms = view_of(data, measure)["served"]["run"]["arms"]
        series = drawn(page, f"byBudgetSeries({at})", tmp_path)
        assert [one["name"] for one in series] == ["fedit (reference)", "ub-smoe", "hetlora (a)", "hetlora (b)"]
        for one, arm in zip(series, arms, strict=True):
            points = [[point["low"], point["y"], point["high"]] for point in one["points"]]
            assert points == [close([factor * end for end in ends(mean)]) for mean in arm["means"]]
            assert len(one["thin"]) == seeds
            assert [point["y"] for point in one["thin"][1]] == close([factor * values[1] for values in arm["seeds"]])
        items = drawn(page, f"differenceItems({at})", tmp_path)
        expected = [difference for arm in arms[1:] for difference in [*arm["differences"], arm["difference_over_budgets"]]]
        assert [[item["low"], item["y"], item["high"]] for item in items] == [close([factor * end for end in ends(one)]) for one in expected]
        assert [item["hollow"] for item in items] == [one.get("p_holm", 1) >= 0.05 for one in expected]


@pytest.mark.parametrize("seeds", [2, 40])
def test_bands_of_curves_are_means_and_intervals_over_seeds(study, tmp_path, seeds):
    folder = study(seeds)
    page = page_of(folder)
    runs = [folder / "fedit" / f"seed-{seed}" for seed in range(1, seeds + 1)]
    losses = [[record["loss"] for record in lines(run / "rounds.jsonl")] for run in runs]
    loss = drawn(page, "curveSeries(quantityOf('loss').curves, 'bytes')", tmp_path)[0]
    for place, point in enumerate(loss["points"]):
        assert [point["low"], point["y"], point["high"]] == close(interval([one[place] for one in losses]))
    spent = [sum(record["bytes_up"] + record["bytes_down"] for record in lines(runs[0] / "rounds.jsonl")[:count]) for count in (1, 2)]
    assert [point["x"] for point in loss["points"]] == close(spent)
    curves = drawn(page, "curveSeries(data.progress.find((one) => one.measure === 'log_likelihood').over_budgets, 'round')", tmp_path)
    budgets = [one["budget"] for one in page_data(page)["budgets"]]
    arms = [("fedit", ""), ("ub-smoe", ""), ("hetlora", "a"), ("hetlora", "b")]
    for curve, (arm, mode) in zip(curves, arms, strict=True):
        runs = [folder / arm / f"seed-{seed}" for seed in range(1, seeds + 1)]
        assert [one["x"] for one in curve["points"]] == [0, 1, 2]
        for point in curve["points"]:
            values = [statistics.mean(recorded(run, "log_likelihood", budget, mode, last=point["x"])
                                      for budget in budgets) for run in runs]
            assert [point["low"], point["y"], point["high"]] == close(interval(values))


def test_maps_of_many_large_frames_share_one_scale(study, tmp_path):
    page = page_of(study(2))
    data = page_data(page)
    layers = lambda value: [[value] * 64] * 16
    frames = [{"round": round_, "utilization": layers(0.25 + round_ / 1000), "minus_first": layers(-round_ / 1000)}
              for round_ in range(60)]
    data["experts"]["maps"] = [{"arm": 0, "label": str(arm), "frames": frames} for arm in range(8)]
    text = json.dumps(data).replace("<", "\\u003c")
    large = re.sub(r'(id="data">).*?(</script>)', lambda found: found[1] + text + found[2], page, flags=re.S)
    ranges = """((shown) => {
      element = () => ({});
      heatChart = (row, {range}) => shown.push(range);
      mapsAt({}, 59);
      return shown;
    })([])"""
    assert drawn(large, ranges, tmp_path) == [[0, pytest.approx(0.309)], pytest.approx([-0.059, 0.059])] * 8
    many = "[...Array(400000).keys()]"
    assert drawn(page, f"rangeOf({many}, {{bounds: [7, 399000]}})", tmp_path) == [7, 399000]


def test_a_section_that_fails_leaves_the_others_on_the_page(study, tmp_path):
    if NODE is None:
        pytest.skip("no node: apt-get install nodejs")
    data, script = re.search(r'id="data">(.*?)</script>\s*<script>(.*?)</script>', page_of(study(2)), re.S).groups()
    head, mark, loop = script.partition("\nfor (const draw")
    names = re.findall(r"\w+Section", loop)
    doubles = """
const seen = [], errors = [];
process.on('uncaughtException', ({message}) => errors.push(message));
setTimeout(() => console.log(JSON.stringify({seen, errors})), 100);
""" + "".join(f"{name} = () => seen.push('{name}');\n" for name in names)
    doubles += "expertsSection = () => { throw new Error('of experts'); };"
    (tmp_path / "page.js").write_text(BROWSER + head + doubles + mark + loop)
    done = subprocess.run([NODE, tmp_path / "page.js"], input=data, capture_output=True, text=True, timeout=60)
    others = [name for name in names if name != "expertsSection"]
    assert json.loads(done.stdout) == {"seen": others, "errors": ["of experts"]}, done.stderr


def test_arms_of_one_method_with_other_settings_stay_apart(templates, tmp_path):
    """By method alone, two runs with other seeds would be one arm with an interval."""
    slow = [("lr = 0.005", "lr = 0.001")]
    folders = [synthetic_run(templates["fedit"], tmp_path / "fast-1", 1, 0), synthetic_run(templates["fedit"], tmp_path / "slow-2", 2, 3, settings=slow)]
    data = page_data(page_of(*folders))
    assert [(arm["name"], arm["runs"]) for arm in data["arms"]] == [("fast-1", [0]), ("slow-2", [1])]
    for arm in view_of(data, "log_likelihood")["served"]["run"]["arms"]:
        assert all("low" not in mean for mean in arm["means"]) and all(difference["n"] == 0 for difference in arm["differences"])
    folders += [synthetic_run(templates["fedit"], tmp_path / "fast-2", 2, 0), synthetic_run(templates["fedit"], tmp_path / "slow-1", 1, 2, settings=slow)]
    data, report = page_data(page_of(*folders)), json.loads(succeed("report", *folders, "--format", "json").stdout)
    arms = view_of(data, "log_likelihood")["served"]["run"]["arms"]
    assert [arm["name"] for arm in arms] == ["fast-1 (reference)", "slow-2"] and [mean["n"] for arm in arms for mean in arm["means"]] == [2] * 4
    assert ends(arms[1]["differences"][0]) == close([report["served"][0]["arms"][1]["differences"][0]["interval_t"][0],
                                                     report["served"][0]["arms"][1]["differences"][0]["mean"],
                                                     report["served"][0]["arms"][1]["differences"][0]["interval_t"][1]])


def test_runs_that_repeat_a_seed_are_arms_of_their_own(templates, tmp_path):
    shutil.copytree(templates["fedit"], tmp_path / "again")
    data = page_data(page_of(templates["fedit"], tmp_path / "again"))
    assert [(arm["name"], arm["runs"]) for arm in data["arms"]] == [("fedit", [0]), ("again", [1])]
    one = view_of(data, "log_likelihood")["served"]["run"]["arms"][1]["differences"][0]
    assert (one["n"], one["mean"]) == (1, 0)
    twice = [arm["runs"] for arm in page_data(page_of(templates["fedit"], templates["fedit"]))["arms"]]
    assert twice == [[0], [1]]


def test_the_page_opens_on_the_endpoint_of_the_study_or_of_the_text_report(study, templates, tmp_path):
    assert page_data(page_of(study(2)))["endpoint"] == "log_likelihood"
    other = synthetic_study(tmp_path / "by-accuracy", templates, (1, 2), endpoint="accuracy")
    assert page_data(page_of(other))["endpoint"] == "accuracy"
    assert page_data(succeed("report", other, "--endpoint", "invalid_rate", "--format", "html").stdout)["endpoint"] == "invalid_rate"
    alone = page_of(templates["fedit"], templates["ub-smoe"])
    assert page_data(alone)["endpoint"] == json.loads(succeed("report", templates["fedit"], templates["ub-smoe"], "--format", "json").stdout)["endpoint"]


def test_a_measure_is_0_because_no_answer_can_be_read_and_it_is_said(study, templates, tmp_path):
    said = lambda folder, measure: {view["task"]: view["served"]["run"].get("unreadable", "") for view in page_data(page_of(folder))["views"]
                                    if view["measure"] == measure}
    raw = synthetic_study(tmp_path / "raw", templates, (1, 2), accuracy=0.0, invalid_rate=1.0, accuracy_valid=0.0)
    every = "This measure is 0 everywhere: 100 % of the answers there cannot be read or are empty."
    assert said(raw, "accuracy") == {"": every, "builtin:facts": every, "builtin:sizes": every}
    assert set(said(raw, "log_likelihood").values()) == set(said(study(2), "accuracy").values()) == {""}
    for file in raw.glob("ub-smoe/*/evaluations.jsonl"):
        shutil.copy(study(2) / "ub-smoe" / file.parent.name / "evaluations.jsonl", file)
    assert said(raw, "accuracy")[""].startswith("This measure is 0 for fedit at budgets 0.125, 1; hetlora (a) at budgets 0.125, 1; hetlora (b)")


def test_differences_between_runs_stand_in_every_section_that_compares_arms(templates, tmp_path):
    folders = [templates["fedit"], synthetic_run(templates["ub-smoe"], tmp_path / "other", 1, 0, settings=[("cutoff = 640", "cutoff = 320")])]
    page = page_of(*folders)
    assert "data.cutoff" in [one["what"] for one in page_data(page)["differences"]]
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    linked = "[...document.querySelectorAll('main section')].filter((one) => one.querySelector('a[href=\"#differences\"]')).map((one) => one.id)"
    check = f"addEventListener('load', () => parent.postMessage(JSON.stringify({linked}), '*'));"
    assert opened(page, 1440, tmp_path, check) == ["comparison", "progress", "experts", "cost"]


def test_missing_runs_and_notes_are_those_of_the_json_report(study, tmp_path):
    copy = shutil.copytree(study(2), tmp_path / "study")
    shutil.rmtree(copy / "ub-smoe/seed-2")
    data, report = page_data(page_of(copy)), json.loads(succeed("report", copy, "--format", "json").stdout)
    assert data["missing"] == report["missing"] and len(data["missing"]) == 1 and "ub-smoe, seed 2" in data["missing"][0]
    assert [len(arm["runs"]) for arm in data["arms"]] == [2, 1, 2]
    smoe = view_of(data, "log_likelihood")["served"]["run"]["arms"][1]
    assert [mean["n"] for mean in smoe["means"]] == [1, 1] and smoe["seeds"][0][1] is None and "low" not in smoe["differences"][0]
