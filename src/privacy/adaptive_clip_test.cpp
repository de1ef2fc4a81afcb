#include "privacy/adaptive_clip.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/plain/error.h"
#include "privacy/accountant.h"

namespace evenkeel::privacy {
namespace {

TEST(AdaptiveClip, SumAndIndicatorsTogetherCostOneRelease) {
  EXPECT_NEAR(noise_beside_indicators(1, 5), 1.005037815259212, 1e-15);
  Accountant pair, one;
  pair.add({.noise = noise_beside_indicators(2, 3)});
  pair.add({.noise = 2 * 3});
  one.add({.noise = 2});
  EXPECT_NEAR(pair.spent(1e-6).epsilon, one.spent(1e-6).epsilon, 1e-12);
  EXPECT_THROW(noise_beside_indicators(2, 1), Error);
  EXPECT_THROW(noise_beside_indicators(2, -3), Error);
}

TEST(AdaptiveClip, GrowsWhereFewAreWithinAndShrinksWhereManyAre) {
  EXPECT_NEAR(next_clip(0.5, 0.3, 0.5, 0.2), 0.5204053870961941, 1e-15);
  EXPECT_NEAR(next_clip(0.5, 0.8, 0.5, 0.2), 0.47088226679212436, 1e-15);
  EXPECT_EQ(next_clip(0.5, 0.5, 0.5, 0.2), 0.5);
}

}  // namespace
}  // namespace evenkeel::privacy
