"""Compares the statistics of studies with scipy and statsmodels on random numbers."""

import warnings

import numpy as np
import pytest

from jobs import answer

scipy_stats = pytest.importorskip("scipy.stats")
special = pytest.importorskip("scipy.special")
multipletests = pytest.importorskip("statsmodels.stats.multitest").multipletests
TTestPower = pytest.importorskip("statsmodels.stats.power").TTestPower

BLANK = {"values": [0.0], "items": [], "p_values": [], "probabilities": [], "freedoms": [], "beta": [], "effects": [],
         "resamples": 1, "key": 1}
CASES = [(2, 0), (3, 1), (5, 2), (7, 3), (24, 4), (200, 5)]  # number of seeds, random state


def ours(tmp_path, **job):
    return answer("statistics_step", tmp_path, {**BLANK, **job})


def differences(count, state):
    """Returns random differences with a skewed distribution whose mean is not 0."""
    return np.random.default_rng(state).gamma(1.5, 0.03, count) - 0.02


def test_quantiles_and_distributions_equal_scipys(tmp_path):
    probabilities = [1e-12, 1e-6, 0.0005, 0.025, 0.1, 0.3, 0.4999, 0.5, 0.5001, 0.8, 0.975, 0.9999, 1 - 1e-9]
    freedoms = [1, 2, 3, 4.5, 9, 30, 251, 10_000]
    made = ours(tmp_path, probabilities=probabilities, freedoms=freedoms)
    p, f = np.array(probabilities), np.array(freedoms)
    np.testing.assert_allclose(made["normal_quantiles"], special.ndtri(p), rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(made["normal_cdfs"], special.ndtr(10 * p - 5), rtol=1e-10)
    grid = scipy_stats.t.ppf(p[:, None], f[None, :]).ravel()
    np.testing.assert_allclose(made["t_quantiles"], grid, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(made["t_cdfs"], scipy_stats.t.cdf(20 * p[:, None] - 10, f[None, :]).ravel(), rtol=1e-10)


def test_the_incomplete_beta_function_equals_scipys(tmp_path):
    draw = np.random.default_rng(6)
    beta = [[float(a), float(b), float(x)] for a, b, x in zip(
        np.exp(draw.uniform(-3, 7, 300)), np.exp(draw.uniform(-3, 7, 300)), draw.uniform(0, 1, 300), strict=True)]
    beta += [[0.5, 0.5, 0.0], [0.5, 0.5, 1.0], [3.0, 0.5, 0.5], [1e4, 0.5, 0.9999]]
    made = ours(tmp_path, beta=beta)["betas"]
    np.testing.assert_allclose(made, [special.betainc(*one) for one in beta], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("count, state", CASES)
def test_intervals_and_tests_of_pairs_equal_scipys(tmp_path, count, state):
    values = differences(count, state)
    made = ours(tmp_path, values=values.tolist())
    test = scipy_stats.ttest_1samp(values, 0)
    paired = scipy_stats.ttest_rel(values + 0.7, np.full(count, 0.7))
    np.testing.assert_allclose(made["mean"], [values.mean()], rtol=1e-12)
    np.testing.assert_allclose(made["t"], test.confidence_interval(0.95), rtol=1e-10)
    np.testing.assert_allclose(made["p"], [test.pvalue], rtol=1e-10)
    np.testing.assert_allclose(made["p"], [paired.pvalue], rtol=1e-8)


@pytest.mark.parametrize("count, state", [(1, 7), (5, 8), (12, 9), (40, 10)])
def test_holms_correction_equals_statsmodels(tmp_path, count, state):
    p_values = np.random.default_rng(state).beta(0.5, 3, count)
    p_values[count // 2:] = p_values[count // 2]  # ties
    made = ours(tmp_path, p_values=p_values.tolist())["holm"]
    np.testing.assert_allclose(made, multipletests(p_values, method="holm")[1], rtol=1e-12)


@pytest.mark.parametrize("count, state", CASES[:5])
def test_the_smallest_detectable_difference_equals_statsmodels(tmp_path, count, state):
    values = differences(count, state)
    made = ours(tmp_path, values=values.tolist())["detectable"]
    effect = made[0] / values.std(ddof=1)
    power = TTestPower().power(effect, nobs=count, alpha=0.05, alternative="two-sided")
    assert power == pytest.approx(0.8, rel=1e-8)


def test_the_power_of_paired_tests_equals_statsmodels(tmp_path):
    effects = [[effect, pairs] for effect in (0.0, 0.1, 0.5, 1.3, 4.0) for pairs in (2, 3, 5, 20, 100)]
    made = ours(tmp_path, effects=effects)["powers"]
    peers = [TTestPower().power(effect, nobs=pairs, alpha=0.05, alternative="two-sided") for effect, pairs in effects]
    known = np.isfinite(peers)  # scipy's noncentral t has no value far from the centre, where the power is 1
    np.testing.assert_allclose(made[known], np.array(peers)[known], rtol=1e-8, atol=1e-10)
    assert known.sum() > 18 and (made[~known] > 1 - 1e-9).all()


@pytest.mark.parametrize("count, state", CASES)
def test_the_bca_interval_of_our_resamples_equals_scipys(tmp_path, count, state):
    values = differences(count, state)
    made = ours(tmp_path, values=values.tolist(), resamples=4_001)
    # scipy compares all bits of two means, and the last ones depend on the order of a sum: without them, ties are equal.
    given = type("Result", (), {"bootstrap_distribution": made["resampled"].round(14)})()
    peer = scipy_stats.bootstrap((values,), lambda x, axis: x.mean(axis).round(14), n_resamples=0, bootstrap_result=given, method="BCa")
    np.testing.assert_allclose(made["bca"], peer.confidence_interval, rtol=1e-9)


def test_our_resamples_have_the_distribution_of_scipys(tmp_path):
    values = differences(5, 11)
    made = ours(tmp_path, values=values.tolist(), resamples=20_000)["resampled"]
    peer = scipy_stats.bootstrap((values,), np.mean, n_resamples=20_000, rng=np.random.default_rng(12)).bootstrap_distribution
    # With two samples of 20,000 the largest distance of equal distributions stays below 0.0195 with probability 0.999.
    assert scipy_stats.ks_2samp(made, peer).statistic < 0.02
    # The standard error of a standard deviation of 20,000 values is 0.5 %; the bound is six of them.
    assert made.std() == pytest.approx(values.std() / np.sqrt(5), rel=0.03)


def test_items_are_drawn_within_seeds(tmp_path):
    """The variance of a two-stage bootstrap is that of the seeds plus that of the items within them."""
    draw = np.random.default_rng(13)
    items = [[(draw.normal(seed, 1, 30)).tolist(), (draw.normal(-seed, 2, 11)).tolist()] for seed in (0.1, 0.4, -0.2, 0.3)]
    values = [float(np.mean([np.mean(task) for task in tasks])) for tasks in items]
    made = ours(tmp_path, values=values, items=items, resamples=20_000)["resampled"]
    within = np.mean([(np.var(a) / 30 + np.var(b) / 11) / 4 for a, b in items])
    assert made.mean() == pytest.approx(np.mean(values), abs=0.01)
    assert made.var() == pytest.approx((np.var(values) + within) / 4, rel=0.04)  # four standard errors of a variance
    seeds_only = ours(tmp_path, values=values, resamples=20_000)["resampled"]
    assert seeds_only.var() < made.var() / 3


def test_resamples_depend_on_their_key_alone(tmp_path):
    values = differences(6, 14).tolist()
    first, again, other = [ours(tmp_path, values=values, resamples=300, key=key)["resampled"] for key in (1, 1, 2)]
    assert (first == again).all() and (first != other).any()


def test_one_seed_has_no_interval(tmp_path):
    made = ours(tmp_path, values=[0.25])
    assert made["mean"] == [0.25] and all(made[name].size == 0 for name in ("t", "p", "bca", "detectable"))


def test_equal_differences_have_an_interval_without_length_and_are_not_tested(tmp_path):
    made = ours(tmp_path, values=[0.1] * 3, resamples=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert scipy_stats.ttest_1samp([0.1] * 3, 0).pvalue < 1e-30  # of a deviation that three pairs cannot show to be 0
    for name in ("t", "bca"):
        np.testing.assert_allclose(made[name], [0.1, 0.1], rtol=1e-14)
    assert made["p"].size == made["detectable"].size == 0
    assert ours(tmp_path, values=[0.0] * 3)["p"] == [1]
