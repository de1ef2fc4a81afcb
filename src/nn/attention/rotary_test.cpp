#include "nn/attention/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <vector>

namespace evenkeel::nn {
namespace {

constexpr int64_t kWidth = 16, kTrained = 64;
constexpr double kTheta = 10000;

std::vector<double> rotary_numbers(const RopeSpec& spec) {
  const auto found = rotary_frequencies(spec, kWidth, c10::kCPU);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  std::vector<double> out;
  for (int64_t i = 0; i < found.size(0); ++i) out.push_back(found[i].item<double>());
  return out;
}

double plain_frequency(size_t i) {
  return std::pow(kTheta, -2.0 * static_cast<double>(i) / static_cast<double>(kWidth));
}
double turns_in_training(size_t i) {
  return static_cast<double>(kTrained) * plain_frequency(i) / (2 * std::numbers::pi);
}

void expect_near(const std::vector<double>& found, const std::function<double(size_t)>& right) {
  ASSERT_EQ(found.size(), static_cast<size_t>(kWidth / 2));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], right(i), 1e-6 * right(i)) << i;
}

TEST(RotaryFrequencies, ArePowersOfTheta) { expect_near(rotary_numbers({}), plain_frequency); }

TEST(RotaryFrequencies, OfLinearScalingAreDivided) {
  expect_near(rotary_numbers({.scaling = LinearRope{2.5}}), [](size_t i) { return plain_frequency(i) / 2.5; });
}

TEST(RotaryFrequencies, OfLlama3AreDividedWhereTheyTurnSeldom) {
  const Llama3Rope rope{.factor = 8, .low_freq_factor = 0.5, .high_freq_factor = 5, .trained_length = kTrained};
  expect_near(rotary_numbers({.scaling = rope}), [](size_t i) {
    const double kept = std::clamp((turns_in_training(i) - 0.5) / 4.5, 0.0, 1.0);
    return kept * plain_frequency(i) + (1 - kept) * plain_frequency(i) / 8;
  });
}

TEST(RotaryFrequencies, OfYarnAreDividedFromTheIndexThatTurnsSeldom) {
  const YarnRope rope{.factor = 8, .beta_fast = 6, .beta_slow = 0.6, .trained_length = kTrained, .truncate = false};
  const auto index_of = [](double count) {
    return kWidth * std::log(kTrained / (count * 2 * std::numbers::pi)) / (2 * std::log(kTheta));
  };
  const double low = index_of(6), high = index_of(0.6);
  ASSERT_GT(low, 0);
  expect_near(rotary_numbers({.scaling = rope}), [&](size_t i) {
    const double kept = 1 - std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    return kept * plain_frequency(i) + (1 - kept) * plain_frequency(i) / 8;
  });
}

TEST(RotaryTable, HasTheFactorOfAttentionInBothParts) {
  const auto positions = at::tensor({0, 3, 9}, at::kLong);
  const auto one = rotary_table(positions, kWidth, {}),
             half = rotary_table(positions, kWidth, {.attention_factor = 0.5});
  EXPECT_TRUE(at::equal(one.cos * 0.5, half.cos));
  EXPECT_TRUE(at::equal(one.sin * 0.5, half.sin));
  EXPECT_NEAR(one.cos[1][2].item<double>(), std::cos(3 * plain_frequency(2)), 1e-6);
  EXPECT_NEAR(one.sin[2][kWidth / 2 + 1].item<double>(), std::sin(9 * plain_frequency(1)), 1e-6);
}

}  // namespace
}  // namespace evenkeel::nn
