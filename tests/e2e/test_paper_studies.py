"""`doctor --config` of every study in configs/paper, with models of the published shapes and the published data."""

import os
import pathlib
import re
import sys
import tomllib

import pytest

from measured import Measured
from published_models import OLMO_1B, OLMOE_1B_7B, shapes_of
from tiny import ROOT, succeed

sys.path.insert(0, str(ROOT / "tools"))
import paper_work  # noqa: E402

FILES = sorted(file for file in (ROOT / "configs/paper").glob("*.toml") if "[study]" in file.read_text())
NIGHTLY = "EVENKEEL_NIGHTLY" in os.environ
ON_PUSH = {"commonsense", "dense", "telequad-non-iid"}
FEW_ROWS = ("--set", "data.limit=300", "--set", "evaluate.limit=4")
HOURS = {"days": 24, "h": 1, "min": 1 / 60, "s": 1 / 3600}
ONE_TASK = ("--set", "evaluate.tasks=['obqa']")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    data = pathlib.Path(os.environ.get("EVENKEEL_DATA", "EVENKEEL_DATA"))
    tokenizer = data / "tokenizer/allenai_gpt-neox-olmo-dolma-v1_5.json"
    for path in (tokenizer, data / "commonsense", data / "telequad"):
        if not path.exists():
            pytest.skip(f"{path} is not there")
    return paper_work.make_models(tmp_path_factory.mktemp("models"), data)


def base_of(file):
    study = tomllib.loads(file.read_text())
    return study, tomllib.loads((file.parent / study["study"]["base"]).read_text())


def foreseen(file, models, *words):
    """Returns the lines of the forecast by their first word."""
    named = pathlib.Path(base_of(file)[1]["model"]["path"]).name
    fewer = () if NIGHTLY else (*FEW_ROWS, *(() if "telequad" in file.stem else ONE_TASK))
    done = succeed("doctor", "--config", file, "--set", f"model.path={models[named]}", *fewer, *words)
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def gib(text):
    return [float(number) for number in re.findall(r"([\d.]+) GiB", text)]


def test_the_models_have_the_published_number_of_parameters():
    numbers = [sum(shape[0] * (shape[1] if len(shape) > 1 else 1) for shape in shapes_of(config).values())
               for config in (OLMOE_1B_7B, OLMO_1B)]
    assert numbers == [6_919_161_856, 1_176_764_416]


@pytest.mark.parametrize("file", [f for f in FILES if NIGHTLY or f.stem in ON_PUSH], ids=lambda file: file.stem)
def test_every_study_of_the_paper_is_foreseen_without_its_weights(models, file):
    study, base = base_of(file)
    said = foreseen(file, models)
    arms, seeds = len(study["arm"] if "arm" in study else study["study"]["arm"]), len(study["study"]["seeds"])
    assert said["study"] == f"{file.stem}: {arms} arms x {seeds} seeds, {arms * seeds} runs, {arms * seeds} to make by this command"
    large = pathlib.Path(base["model"]["path"]).name in models
    assert large and re.fullmatch(r"[\d.:]+ (days|h|min|s) with --jobs 1, by FLOPs, at [\d.]+ [GT]FLOP/s of a large product here", said["time"]), said
    each, at_once, available = gib(said["memory"])
    assert 5 < each == at_once and ("does not fit" in said["memory"]) == (at_once > available)
    assert 1 < gib(said["disk"])[0] < 200 and f"runs/{file.stem}" in said["disk"]
    assert said["array"].startswith(f"sbatch --array=1-{arms * seeds} ")


def test_the_time_of_a_study_grows_with_its_rounds(models):
    """Two or eight rounds, one evaluation at the end; the speed of the machine is divided out."""
    def operations(*words):
        text = foreseen(ROOT / "configs/paper/rho.toml", models, *FEW_ROWS, *ONE_TASK, *words)["time"]
        number, unit, speed = re.match(r"([\d.:]+) (days|h|min|s) .* ([\d.]+) GFLOP", text).groups()
        large, small = [*map(float, number.split(":")), 0][:2]
        return (large + small / 60) * HOURS[unit] * float(speed)
    assert 2 < operations("--set", "train.rounds=8") / operations("--set", "train.rounds=2") < 4.5


@pytest.mark.parametrize("name", paper_work.names() if NIGHTLY else ["small/dense", "small/homogeneous-k1"])
def test_the_recorded_work_of_a_study_is_what_a_dry_run_counts(models, tmp_path, name):
    counted = paper_work.count(name, models, tmp_path)
    assert paper_work.recorded()[name] == pytest.approx(counted, rel=paper_work.TOLERANCE)


@pytest.mark.parametrize("config, model", [("olmoe-1b-7b", "OLMoE-1B-7B-0924"), ("olmoe-1b-7b-32-uniform", "OLMoE-1B-7B-0924"),
                                           ("olmo-1b-ranks", "OLMo-1B-hf")])
def test_a_run_of_a_large_model_is_foreseen_without_its_weights(models, config, model):
    """The weights are holes in sparse files of 14 and 5 GB. They would be resident if they were read."""
    doctor = Measured("doctor", "--config", ROOT / f"configs/commonsense/{config}.toml", "--set", f"model.path={models[model]}",
                      *FEW_ROWS, *ONE_TASK)
    text = doctor.finish()
    assert re.search(r"^time    [\d.:]+ (days|h|min|s), by FLOPs, at [\d.]+ [GT]FLOP/s of a large product here$", text, re.M), text
    assert doctor.resident < 3e9


def test_a_run_and_a_study_of_one_run_take_the_same_time(models, tmp_path):
    """Both divide the same FLOPs by the speed of a product, which each measures anew."""
    base = ROOT / "configs/commonsense/olmoe-1b-7b.toml"
    (tmp_path / "one.toml").write_text(f'[study]\nbase = "{base}"\nseeds = [42]\n[[study.arm]]\nname = "ub-smoe"\nset = []\n')
    words = ("--set", f"model.path={models['OLMoE-1B-7B-0924']}", *FEW_ROWS, *ONE_TASK)

    def operations(config):
        text = succeed("doctor", "--config", config, *words).stdout
        number, unit, speed = re.search(r"^time +([\d.:]+) (days|h|min|s)\b.* ([\d.]+) GFLOP", text, re.M).groups()
        large, small = [*map(float, number.split(":")), 0][:2]
        return (large + small / 60) * HOURS[unit] * float(speed)
    assert operations(base) == pytest.approx(operations(tmp_path / "one.toml"), rel=0.03)
