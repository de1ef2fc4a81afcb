// The vectors were computed by a Python reference.
#include "privacy/noisy_sum.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/plain/error.h"
#include "base/random/random.h"
#include "crypto/testing.h"
#include "privacy/accountant.h"
#include "privacy/discrete_gaussian.h"

namespace evenkeel::privacy {
namespace {

using testing::hex;
using testing::secret_of;
using Floats = std::vector<float>;
using Integers = std::vector<int64_t>;

TEST(ClippedChange, HasThePublishedIntegers) {
  const auto long_one = clipped(Floats{0.3F, -0.4F, 1.2F, 0}, grid_of(4, 1));
  EXPECT_NEAR(long_one.factor, 0.7662252308, 1e-7);  // the vector has decimals, which float32 rounds
  EXPECT_EQ(long_one.values, (Integers{59, -78, 235, 0}));
  const auto short_one = clipped(Floats{0.3F, -0.4F, 0.2F, 0}, grid_of(4, 1));
  EXPECT_EQ(short_one.factor, 1);
  EXPECT_EQ(short_one.values, (Integers{77, -102, 51, 0}));
  EXPECT_EQ(clipped(Floats{1, 1, 1, 1}, grid_of(4, 0.5)).values, (Integers{127, 127, 127, 127}));
  EXPECT_EQ(clipped(Floats{0, 0, 0, 0}, grid_of(4, 0.5)).values, (Integers{0, 0, 0, 0}));
}

TEST(ClippedChange, GridsHaveThePowersOfTwoOfTheirSizes) {
  EXPECT_EQ(grid_of(4, 1).bound, 256);
  EXPECT_EQ(grid_of(4, 1).target, 255);
  EXPECT_EQ(grid_of(1'250'000, 1).bound, 1 << 18);
  EXPECT_EQ(grid_of(4'194'304, 1).bound, 1 << 18);
  EXPECT_EQ(grid_of(4'194'305, 1).bound, 1 << 19);
  EXPECT_EQ(grid_of(193'986'560, 1).bound, 1 << 21);
  EXPECT_EQ(grid_of(1, 0.25).step, 0.25 / 128);
}

double norm(const Integers& values) {
  double sum = 0;
  for (const int64_t value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

TEST(ClippedChange, NeverExceedsTheBound) {
  RandomStream stream(11, "changes");
  for (const int64_t size : {1, 3, 50, 5000, 20'000})
    for (const double scale : {1e-30, 1e-3, 1.0, 1e30}) {
      Floats change(static_cast<size_t>(size));
      stream.fill_normal(change, scale);
      const auto grid = grid_of(size, 0.7);
      EXPECT_LE(norm(clipped(change, grid).values), static_cast<double>(grid.bound)) << size << " " << scale;
    }
}

TEST(ClippedChange, IsScaledAgainUntilTheIntegersAreWithinTheBound) {
  auto grid = grid_of(4, 1);
  grid.target = static_cast<double>(grid.bound) + 1;  // beyond what the bound allows
  const auto change = clipped(Floats{2, -1, 3, 5}, grid);
  EXPECT_LE(norm(change.values), static_cast<double>(grid.bound));
  EXPECT_GE(norm(change.values), static_cast<double>(grid.bound) - 2);
}

TEST(ClippedChange, DoesNotDependOnThreads) {
  Floats change(300'001);
  RandomStream(12, "changes").fill_normal(change, 1);
  const auto grid = grid_of(300'001, 3);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = clipped(change, grid);
  at::set_num_threads(2);
  const auto two = clipped(change, grid);
  at::set_num_threads(before);
  EXPECT_EQ(one.values, two.values);
  EXPECT_EQ(one.factor, two.factor);
}

TEST(ClippedChange, RefusesWhatIsNotFinite) {
  EXPECT_THROW(clipped(Floats{1, NAN}, grid_of(2, 1)), Error);
  EXPECT_THROW(clipped(Floats{1, std::numeric_limits<float>::infinity()}, grid_of(2, 1)), Error);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_THROW(grid_of(2, bad), Error) << bad;
  EXPECT_THROW(grid_of(0, 1), Error);
}

TEST(NoiseSeed, IsAFunctionOfKeyRunRoundNameAndSum) {
  const auto key = secret_of("evenkeel dp noise key");
  const auto seed = noise_seed(key, {"r1", 0, "lora_A"}, Integers{1, -2, 3, 0});
  EXPECT_EQ(hex(seed.bytes()), "b147e8608bebdb040742f1603c9f14f0a417abe4407e1cbd44ddbd6287754506");
  Integers noise(4, 0);
  add_discrete_gaussian(noise, 100, seed);
  EXPECT_EQ(noise, (Integers{-15, 5, 1, -12}));
  EXPECT_EQ(hex(noise_seed(key, {"r1", 0, "lora_A"}, Integers{1, -2, 3, 1}).bytes()),
            "237acfab06d787ae2fd6bb302cd738fb53746e4379d74b3d21ae195b4f6d2c6b");
}

TEST(NoiseVariance, IsRoundedUpAndBounded) {
  EXPECT_EQ(noise_variance(1.5, grid_of(4, 1)), 147'456);
  EXPECT_EQ(noise_variance(0.01, grid_of(4, 1)), 7);
  EXPECT_THROW(noise_variance(200, grid_of(193'986'560, 1)), Error);
}

TEST(ClippedChange, AWeightScalesTheIntegersBeforeTheyAreRounded) {
  const auto half = clipped(Floats{0.3F, -0.4F, 0.2F, 0}, grid_of(4, 1), 0.5);
  EXPECT_EQ(half.values, (Integers{38, -51, 26, 0}));  // of 38.4, -51.2, 25.6
  EXPECT_EQ(half.factor, 0.5);
  EXPECT_TRUE(half.within);
  EXPECT_FALSE(clipped(Floats{0.3F, -0.4F, 1.2F, 0}, grid_of(4, 1), 0.5).within);
  EXPECT_EQ(clipped(Floats{3, 4, 0, 0}, grid_of(4, 1), 0).values, (Integers{0, 0, 0, 0}));
}

/// Returns the probability of `most` or fewer successes in `trials`.
double binomial_cdf(int64_t most, int64_t trials, double share) {
  double sum = 0;
  for (int64_t k = 0; k <= most; ++k)
    sum += std::exp(std::lgamma(static_cast<double>(trials) + 1) - std::lgamma(static_cast<double>(k) + 1) -
                    std::lgamma(static_cast<double>(trials - k) + 1) + static_cast<double>(k) * std::log(share) +
                    static_cast<double>(trials - k) * std::log1p(-share));
  return sum;
}

/// Returns the share for which `cdf` is `level` (Clopper and Pearson 1934), by bisection.
double share_at(int64_t most, int64_t trials, double level) {
  double low = 1e-9, high = 1 - 1e-9;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (binomial_cdf(most, trials, middle) > level ? low : high) = middle;
  }
  return low;
}

// A client at the clip bound is in the sum, or is not. Who sees the noisy sum guesses.
TEST(NoisySum, AnAttackLearnsLessThanTheAccountAllows) {
  constexpr int64_t kRuns = 2000;
  const auto grid = grid_of(1, 1);
  const auto with = clipped(Floats{5}, grid).values[0];
  DiscreteGaussian noise(secret_of("a canary"));
  int64_t hits = 0, false_alarms = 0;
  for (int64_t run = 0; run < kRuns; ++run) {
    if (with + noise.draw(noise_variance(1, grid)) > grid.bound / 2) ++hits;
    if (noise.draw(noise_variance(1, grid)) > grid.bound / 2) ++false_alarms;
  }
  const double least_hits = share_at(hits - 1, kRuns, 0.975), most_alarms = share_at(false_alarms, kRuns, 0.025);
  const double learned = std::log((least_hits - 1e-5) / most_alarms);
  EXPECT_GT(learned, 0.5) << "the attack sees something";
  Accountant account;
  account.add({.noise = 1});
  EXPECT_LT(learned, account.spent(1e-5).epsilon);
}

}  // namespace
}  // namespace evenkeel::privacy
