#include "comparison/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random/random.h"
#include "comparison/distributions.h"

namespace evenkeel::comparison {
namespace {

TEST(Statistics, TheTQuantileHasItsTabulatedValues) {
  EXPECT_NEAR(t_quantile(0.975, 1), 12.7062047361747, 1e-10);
  EXPECT_NEAR(t_quantile(0.975, 4), 2.77644510519779, 1e-11);
  EXPECT_NEAR(t_quantile(0.025, 2), -4.30265272974946, 1e-11);
  EXPECT_NEAR(normal_quantile(0.975), 1.95996398454005, 1e-12);
}

TEST(Statistics, CdfAndQuantileAreInverse) {
  for (const double freedom : {1.0, 3.0, 7.5, 120.0})
    for (const double p : {0.001, 0.2, 0.5, 0.77, 0.9999})
      EXPECT_NEAR(t_cdf(t_quantile(p, freedom), freedom), p, 1e-13) << freedom << ' ' << p;
}

TEST(Statistics, AnIntervalByTIsTheMeanAndItsStandardError) {
  const std::vector<double> values{1, 2, 3, 4, 10};
  const auto interval = t_interval(values).value();
  const double half = 2.77644510519779 * std::sqrt(12.5 / 5);
  EXPECT_NEAR(interval.low, 4 - half, 1e-10);
  EXPECT_NEAR(interval.high, 4 + half, 1e-10);
}

TEST(Statistics, OneValueHasNoInterval) {
  const std::vector<double> one{0.5};
  EXPECT_FALSE(t_interval(one));
  EXPECT_FALSE(t_test(one));
  EXPECT_FALSE(detectable_difference(one));
  EXPECT_FALSE(bca_interval(one, {0.5}));
}

TEST(Statistics, EqualValuesAreNotTested) {
  const std::vector<double> alike{0.77 - 0.75, 0.02, 0.80 - 0.78};
  EXPECT_NE(alike[0], alike[1]) << "equal up to rounding";
  EXPECT_TRUE(are_alike(alike));
  EXPECT_FALSE(paired_interval(alike));
  EXPECT_TRUE(t_interval(alike));
  EXPECT_FALSE(t_test(alike));
  EXPECT_FALSE(detectable_difference(alike));
  const std::vector<double> zeros{0, 0, 0}, near{0.02, 0.0201};
  EXPECT_FALSE(are_alike(zeros));
  EXPECT_EQ(t_test(zeros), 1.0);
  EXPECT_FALSE(detectable_difference(zeros));
  EXPECT_TRUE(t_test(near));
  EXPECT_TRUE(paired_interval(near));
}

TEST(Statistics, HolmMultipliesTheSmallestByAllAndKeepsTheOrder) {
  const auto corrected = holm(std::vector<double>{0.04, 0.01, 0.5, 0.03});
  const std::vector<double> expected{0.09, 0.04, 0.5, 0.09};
  ASSERT_EQ(corrected.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(corrected[i], expected[i], 1e-15);
  EXPECT_TRUE(holm({}).empty());
}

TEST(Statistics, ATestOfTheDetectableEffectHasThePowerAskedFor) {
  for (const int64_t pairs : {2, 3, 5, 50})
    EXPECT_NEAR(paired_t_power(detectable_effect(pairs), pairs, 0.05), 0.8, 1e-9) << pairs;
  EXPECT_NEAR(paired_t_power(0, 7, 0.05), 0.05, 1e-10);
}

/// Of intervals of the mean of `count` normal values, how many hold the true mean.
template <typename MakeInterval>
double coverage(size_t count, const MakeInterval& make) {
  int64_t held = 0;
  constexpr int64_t kTrials = 400;
  for (int64_t trial = 0; trial < kTrials; ++trial) {
    RandomStream stream(7, "coverage", static_cast<uint64_t>(trial));
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) values.push_back(0.3 + stream.normal());
    const auto interval = make(values).value();
    held += interval.low <= 0.3 && 0.3 <= interval.high;
  }
  return static_cast<double>(held) / kTrials;
}

TEST(Statistics, IntervalsHoldTheTrueMeanAsOftenAsTheySay) {
  EXPECT_NEAR(coverage(5, [](const auto& values) { return t_interval(values); }), 0.95, 0.03);
  uint64_t trial = 0;  // other resamples each time
  const auto bca = [&](const std::vector<double>& values) {
    return bca_interval(values, bootstrap_means(values, {}, {++trial, "coverage"}, 500));
  };
  EXPECT_NEAR(coverage(30, bca), 0.935, 0.035);
}

/// Returns the means of all 27 resamples of three values.
std::vector<double> all_resamples(const std::vector<double>& values) {
  std::vector<double> means;
  for (const double a : values)
    for (const double b : values)
      for (const double c : values) means.push_back((a + b + c) / 3);
  return means;
}

TEST(Statistics, TheOrderOfSeedsDoesNotChangeTheBootstrapInterval) {
  std::vector<double> values{-0.6454, 0.4362, 0.4668};
  do {
    const auto interval = bca_interval(values, all_resamples(values)).value();
    EXPECT_NEAR(interval.low, -0.56182245766466, 1e-12) << values[0] << ' ' << values[1];
    EXPECT_NEAR(interval.high, 0.4566, 1e-12) << values[0] << ' ' << values[1];
  } while (std::next_permutation(values.begin(), values.end()));
}

TEST(Statistics, ResamplesAreMeansOfDrawnSeedsAndItems) {
  const std::vector<double> values{1, 2};
  for (const double mean : bootstrap_means(values, {}, {1, "two"}, 200))
    EXPECT_TRUE(mean == 1 || mean == 1.5 || mean == 2);
  const std::vector<ItemsOfSeed> items{{{0, 2}, {1}}, {{2}, {2, 2, 2}}};  // two tasks, of unequal numbers of items
  for (const double mean : bootstrap_means(values, items, {1, "items"}, 200)) {
    EXPECT_GE(mean, 0.5);
    EXPECT_LE(mean, 2);
    EXPECT_EQ(mean * 8, std::round(mean * 8));
  }
}

}  // namespace
}  // namespace evenkeel::comparison
