#include "privacy/member_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "crypto/testing.h"
#include "privacy/accountant.h"

namespace evenkeel::privacy {
namespace {

using testing::secret_of;
using Integers = std::vector<int64_t>;

TEST(MemberNoise, HonestMembersTogetherHaveTheMultiplierAndHardlyMore) {
  for (const double noise : {0.3, 1.0, 7.5})
    for (const int64_t honest : {1, 2, 26}) {
      SCOPED_TRACE(concat(noise, " of ", honest));
      const auto grid = grid_of(1'250'000, 0.5);
      const auto alone = member_noise(noise, 0, grid, honest);
      EXPECT_EQ(alone.indicator, 0);
      EXPECT_GE(noise_multiplier(alone, grid, honest), noise);
      EXPECT_NEAR(noise_multiplier(alone, grid, honest), noise, 1e-7 * noise);
      const auto with_indicator = member_noise(noise, 4.5, grid, honest);
      EXPECT_GT(with_indicator.variance, alone.variance) << "the indicator has its part of the budget";
      EXPECT_NEAR(noise_multiplier(with_indicator, grid, honest), noise, 1e-6 * noise);
    }
}

TEST(MemberNoise, ASumOfMembersHasTheSumOfTheirVariances) {
  constexpr int64_t kValues = 100'000, kMembers = 3;
  const MemberNoise noise{.variance = 5000, .indicator = 900};
  Integers sum(kValues + 1, 0);
  for (int64_t member = 0; member < kMembers; ++member) {
    Integers change(kValues + 1, 0);
    add_member_noise(change, noise, secret_of(concat("member ", member)), "r1", 0);
    for (size_t i = 0; i < change.size(); ++i) sum[i] += change[i];
  }
  double squares = 0, total = 0;
  for (int64_t i = 0; i < kValues; ++i) {
    const auto value = static_cast<double>(sum[static_cast<size_t>(i)]);
    squares += value * value, total += value;
  }
  EXPECT_NEAR(squares / kValues, 15'000, 5 * 15'000 * std::sqrt(2.0 / kValues));
  EXPECT_NEAR(total / kValues, 0, 5 * std::sqrt(15'000.0 / kValues));
  EXPECT_NE(sum.back(), 0);
}

Integers noise_on(const Integers& change, const MemberNoise& noise, std::string_view run = "r1", int64_t round = 0) {
  auto noisy = change;
  add_member_noise(noisy, noise, secret_of("a member"), run, round);
  for (size_t i = 0; i < change.size(); ++i) noisy[i] -= change[i];
  return noisy;
}

TEST(MemberNoise, EqualChangesGetEqualNoiseAndAnyOtherReleaseGetsItsOwn) {
  const Integers change{5, -7, 11, 0, 2, 1024};
  const MemberNoise noise{.variance = 1'000'000, .indicator = 70'000};
  const auto first = noise_on(change, noise);
  EXPECT_EQ(first, noise_on(change, noise));
  auto other = change;
  other[2] = 12;
  EXPECT_NE(first, noise_on(other, noise));
  auto outside = change;
  outside.back() = -1024;
  EXPECT_NE(first, noise_on(outside, noise));
  EXPECT_NE(first, noise_on(change, noise, "r2"));
  EXPECT_NE(first, noise_on(change, noise, "r1", 1));
  const auto wider = noise_on(change, {.variance = 4'000'000, .indicator = 70'000});
  for (size_t i = 0; i + 1 < change.size(); ++i)
    EXPECT_GT(std::abs(wider[i] - 2 * first[i]), 2) << "the same draw at another width would cancel";
  EXPECT_EQ(noise_on(change, {.variance = 1'000'000}).back(), 0) << "no indicator is sent";
}

TEST(MemberNoise, RefusesVariancesOutsideOfWhatSumsExactlyAllow) {
  const auto grid = grid_of(4, 1);  // a bound of 256
  EXPECT_THROW(member_noise(0.03, 0, grid, 1), Error) << "a variance of 59";
  EXPECT_NO_THROW(member_noise(0.04, 0, grid, 1));
  EXPECT_THROW(member_noise(0.04, 0, grid, 2), Error);
  EXPECT_THROW(member_noise(1e7, 0, grid, 1), Error);
  EXPECT_THROW(member_noise(1, 0.4, grid, 3), Error) << "twice the indicators' noise has to exceed the multiplier";
  EXPECT_THROW(noise_multiplier({.variance = 63}, grid, 3), Error);
  EXPECT_THROW(noise_multiplier({.variance = 640, .indicator = 5}, grid, 3), Error);
  EXPECT_THROW(noise_multiplier({.variance = 640}, grid, 0), Error);
}

TEST(MemberNoise, TheLargestSumHasAllChangesAtTheBoundAndEightDeviations) {
  EXPECT_DOUBLE_EQ(largest_sum({.variance = 40'000}, grid_of(4, 1), 9), 9 * 256 + 8 * 3 * 200);
}

}  // namespace
}  // namespace evenkeel::privacy
