"""Methods of the program written again in Python give its adapters, and the examples of the tutorial do what their papers say."""

import numpy as np
import pytest

from own_method import EXAMPLES, METHODS, adapter, momentum, python, records, succeeded, tensors  # noqa: F401

FILES = {"fedit": ("fedit.py", "Fedit", 30), "ffa-lora": ("ffa_lora.py", "FfaLora", 30), "hetlora": ("hetlora.py", "HetLora", 60),
         "ub-smoe": ("ub_smoe.py", "UbSmoe", 150)}
STUDIED = EXAMPLES.parents[1] / "studies/methods"
RANKS = ["--set", "clients.ranks=[1,2,3,3]"]


def source(name):
    file, cls, _ = FILES[name]
    return f"{METHODS / file}:{cls}"


def norm(arrays):
    return sum(float((array.astype("f8") ** 2).sum()) for array in arrays) ** 0.5


def words_of(name):
    return RANKS if name == "hetlora" else []


@pytest.fixture(scope="session")
def runs(config, fedit, tmp_path_factory):
    """Runs of methods by name, of the program and of Python, each made once."""
    made = {("fedit", False): fedit}

    def run(name, own):
        if (name, own) not in made:
            out = made[name, own] = tmp_path_factory.mktemp("runs") / "run"
            succeeded(config, out, *words_of(name), *([] if own else ["--set", f"method.name={name}"]), method=source(name) if own else None)
        return made[name, own]
    return run


@pytest.mark.parametrize("name", FILES)
def test_a_method_written_again_is_short(name):
    file, _, most = FILES[name]
    assert sum(bool(line.strip()) for line in (METHODS / file).read_text().splitlines()) <= most


@pytest.mark.parametrize("name", ["fedit", "ffa-lora"])
def test_where_every_operation_is_exact_bits_are_equal(runs, name):
    assert adapter(runs(name, True)) == adapter(runs(name, False))
    one, other = records(runs(name, True)), records(runs(name, False))
    assert [(r["loss"], r["bytes_up"], r["bytes_down"]) for r in one] == [(r["loss"], r["bytes_up"], r["bytes_down"]) for r in other]


@pytest.mark.parametrize("name", ["hetlora", "ub-smoe"])
def test_other_methods_are_equal_up_to_rounding(runs, name):
    own, known = tensors(runs(name, True)), tensors(runs(name, False))
    assert own.keys() == known.keys()
    assert norm(own[key] - known[key] for key in own) <= 1e-6 * norm(known.values())
    one, other = records(runs(name, True)), records(runs(name, False))
    assert [(r["bytes_up"], r["bytes_down"]) for r in one] == [(r["bytes_up"], r["bytes_down"]) for r in other]
    assert one[-1]["diagnostics"].keys() == other[-1]["diagnostics"].keys()


@pytest.mark.parametrize("name", FILES)
def test_a_stop_and_two_ranks_change_no_bit(config, runs, name, tmp_path):
    first = ["--set", "train.rounds=1", "--ranks", "2"]
    succeeded(config, tmp_path / "run", *words_of(name), *first, method=source(name))
    succeeded(config, tmp_path / "run", "--set", "train.rounds=2", "--resume", method=source(name))
    assert adapter(tmp_path / "run") == adapter(runs(name, True))


def test_the_studied_phi_of_a_budget_moves_scores_by_its_width(config, fedit, tmp_path):
    source = f"{STUDIED / 'budget_phi.py'}:BudgetPhi"
    narrow, wide = ["--set", "method.budget-phi.width=0"], ["--set", "method.budget-phi.width=3", "--set", "method.budget-phi.momentum=0"]
    succeeded(config, tmp_path / "narrow", *narrow, method=source)
    succeeded(config, tmp_path / "wide", *wide, method=source)
    assert adapter(tmp_path / "narrow") == adapter(fedit)
    assert adapter(tmp_path / "wide") != adapter(fedit)


def test_the_studied_server_momentum_is_that_of_the_tutorial_with_a_step(config, momentum, tmp_path):
    """B starts at zero, so its first change is its value."""
    def run(name, *settings):
        words = [word for setting in settings for word in ("--set", setting)]
        succeeded(config, tmp_path / name, *words, method=f"{STUDIED / 'server_momentum.py'}:ServerMomentum")
        return tensors(tmp_path / name)

    own, known = run("own"), tensors(momentum)
    assert norm(own[key] - known[key] for key in known) <= 1e-6 * norm(known.values())
    once, twice = run("once", "train.rounds=1"), run("twice", "train.rounds=1", "method.server-momentum.step=2")
    factors = [key for key in once if "lora_B" in key]
    assert norm(once[key] for key in factors) > 1e-3
    assert norm(twice[key] - 2 * once[key] for key in factors) <= 1e-6 * norm(once[key] for key in factors)


def test_the_studied_client_momentum_repeats_a_share_of_the_last_move(config, fedit, tmp_path):
    """B starts at zero, so its first move is its value; in the second round the learning rate is next to nothing."""
    def run(name, *settings):
        words = [word for setting in settings for word in ("--set", setting)]
        succeeded(config, tmp_path / name, *words, method=f"{STUDIED / 'client_momentum.py'}:ClientMomentum")
        return tensors(tmp_path / name)

    run("without", "method.client-momentum.momentum=0")
    assert adapter(tmp_path / "without") == adapter(fedit)
    record = records(fedit)[0]
    steps = f"method.client-momentum.steps={record['steps'] // record['participants']}"
    still = ["train.schedule.kind=linear", "train.schedule.final_ratio=1e-6"]
    once, twice = run("once", "train.rounds=1"), run("twice", steps, "method.client-momentum.momentum=0.5", *still)
    factors = [key for key in once if "lora_B" in key]
    assert norm(once[key] for key in factors) > 1e-3
    assert norm(twice[key] - 1.5 * once[key] for key in factors) <= 1e-3 * norm(once[key] for key in factors)
