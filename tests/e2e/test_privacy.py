"""Tests `evenkeel privacy`: each of noise, budget and number of releases from the two others. Also that docs/privacy.md says
which method goes with which guarantee.
"""

import json
import re

import pytest

from hostile import refused
from tiny import CONFIG, ROOT, evenkeel, settings, succeed

GUARANTEES = [{"secure_aggregation__mode": "sums"},
              {"privacy__unit": "example", "privacy__noise_multiplier": 1, "privacy__delta": 1e-3, "privacy__clip": 0.1},
              {"privacy__unit": "client", "privacy__noise_multiplier": 1, "privacy__delta": 1e-3, "privacy__clip": 0.5,
               "clients__participation": 1.0}]
CONDITIONS = {"with `pg = false`, `phi_update = \"off\"`, phi not averaged": {"method__ub-smoe__pg": "false", "method__ub-smoe__phi_update": "off"}}
METHODS = [line.split()[0] for line in succeed("list", "methods").stdout.splitlines()]


def cells_of_methods():
    """Returns method -> what docs/privacy.md says of it beside each guarantee."""
    table = (ROOT / "docs/privacy.md").read_text().partition("## Which methods")[2].partition("\n\nA method")[0]
    cells = {}
    for row in table.strip().splitlines()[2:]:
        names, *said = (cell.strip() for cell in row.strip("|").split("|"))
        for name in re.findall(r"`([a-z0-9-]+)`", names):
            cells[name] = said
    return cells


def test_every_method_is_on_the_page():
    assert set(cells_of_methods()) == set(METHODS)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("place", range(len(GUARANTEES)), ids=["hidden uploads", "private rows", "private clients"])
def test_the_page_says_which_method_goes_with_which_guarantee(method, place):
    said = cells_of_methods()[method][place]

    def run(**more):
        return evenkeel("train", CONFIG, "--print-config", *settings(method__name=method, **GUARANTEES[place], **more))
    if said.startswith("no"):
        done = run()
        assert done.returncode == 1 and method in done.stderr, done.stderr
    elif said in CONDITIONS:
        assert run().returncode == 1 and run(**CONDITIONS[said]).returncode == 0
    else:
        assert said == "yes" or said.startswith("unless")
        assert run().returncode == 0, run().stderr


def planned(*flags):
    return json.loads(succeed("privacy", "--json", *flags).stdout)


@pytest.mark.parametrize("flags, noise, releases, epsilon, order", [
    (["--epsilon", 8, "--releases", 10, "--delta", 1e-5], 2.01649, 10, 8, None),
    (["--epsilon", 8, "--releases", 100, "--delta", 1e-6, "--sampling", 0.1], 1.07008, 100, 8, None),
    (["--noise", 1, "--releases", 1000, "--delta", 1e-5, "--rows", 2000, "--lot", 64], 1, 1000, 7.31, None),
    (["--noise", 1, "--epsilon", 4, "--delta", 1e-6, "--sampling", 0.1], 1, 9, 3.9972715, 5),
    (["--noise", 0.5, "--releases", 1, "--delta", 1e-5], 0.5, 1, 10.7255, 3.3)])
def test_the_third_of_noise_budget_and_releases_is_computed(flags, noise, releases, epsilon, order):
    plan = planned(*flags)
    assert plan["noise"] == pytest.approx(noise, abs=1e-5) and plan["releases"] == releases
    assert plan["epsilon"] == pytest.approx(epsilon, abs=5e-3) and order in (None, plan["order"])
    assert plan["epsilon_loss_distribution"] < plan["epsilon"]


def test_the_text_says_how_large_the_signal_can_be():
    flags = ["--noise", 1, "--delta", 1e-6, "--releases", 40, "--values", 1_250_000]
    said = succeed("privacy", *flags, "--clients", 50).stdout
    assert "at most 0.04472 times the noise of the sum: expect no learning" in said
    assert "all members in each release" in said and "epsilon" in said
    assert "expect no learning" not in succeed("privacy", *flags, "--clients", 1000).stdout
    assert planned(*flags, "--clients", 50)["signal_bound"] == pytest.approx(0.0447214, abs=1e-7)


@pytest.mark.parametrize("flags, says", [
    (["--delta", 1e-5], ["0 of --epsilon, --noise and --releases"]),
    (["--run", "/nowhere/at/all"], ["--run is /nowhere/at/all", "which has no account"]),
    (["--noise", 1, "--releases", 3], ["--delta"]),
    (["--delta", 1e-5, "--noise", 1, "--releases", 3, "--rows", 100, "--lot", 101], ["--lot is 101", "1 to the number of rows, 100"]),
    (["--delta", 1e-5, "--noise", 1, "--releases", 3, "--rows", 100, "--lot", 0], ["--lot is 0"]),
    (["--delta", 1e-5, "--noise", 1, "--releases", 3, "--rows", 100, "--lot", 10, "--sampling", 0.1], ["give one of both"]),
    (["--delta", 1e-5, "--noise", 1, "--releases", 3, "--clients", 0, "--values", 5], ["--clients is 0"]),
    (["--delta", 1e-5, "--noise", 1, "--releases", 3, "--clients", 5, "--values", 0], ["--values is 0"]),
    (["--delta", 1e-9, "--epsilon", 0.01, "--releases", 10**9], ["no noise multiplier up to 1000"]),
    (["--delta", 1e-9, "--epsilon", 0, "--releases", 10], ["epsilon is 0"]),
    (["--delta", 1e-9, "--epsilon", 0.01, "--noise", 1], ["not one release"])])
def test_what_cannot_be_planned_is_refused(flags, says):
    refused("privacy", *flags, says=says)
