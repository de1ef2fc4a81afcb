"""Tests `evenkeel privacy`: each of noise, budget and number of releases from the two others."""

import json

import pytest

from hostile import refused
from tiny import succeed


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
