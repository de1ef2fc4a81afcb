#include "train/rate_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace evenkeel::train {
namespace {

std::vector<double> rates(const RateSchedule& schedule, int64_t steps) {
  std::vector<double> all;
  for (int64_t step = 0; step < steps; ++step) all.push_back(schedule.at(step, steps));
  return all;
}

void expect_rates(const RateSchedule& schedule, const std::vector<double>& expected) {
  const auto found = rates(schedule, static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

TEST(RateSchedule, IsConstantByDefault) {
  EXPECT_TRUE(RateSchedule{}.is_constant());
  for (const double rate : rates({}, 7)) EXPECT_EQ(rate, 1);
}

TEST(RateSchedule, WarmsUpLinearly) {
  expect_rates({.warmup = 3}, {1.0 / 3, 2.0 / 3, 1, 1, 1});
  EXPECT_FALSE(RateSchedule{.warmup = 3}.depends_on_rounds());
}

TEST(RateSchedule, DecaysLinearlyToTheFinalRatio) {
  expect_rates({.kind = RateKind::kLinear, .final_ratio = 0.2}, {1, 0.8, 0.6, 0.4, 0.2});
  expect_rates({.kind = RateKind::kLinear, .warmup = 2, .final_ratio = 0.5}, {0.5, 1, 1, 0.75, 0.5});
}

TEST(RateSchedule, DecaysAlongHalfACosineToTheFinalRatio) {
  const double quarter = std::sqrt(0.5) / 2;
  expect_rates({.kind = RateKind::kCosine, .final_ratio = 0.2},
               {1, 0.2 + 0.8 * (0.5 + quarter), 0.6, 0.2 + 0.8 * (0.5 - quarter), 0.2});
  const RateSchedule long_one{.kind = RateKind::kCosine, .warmup = 10, .final_ratio = 0.1};
  EXPECT_DOUBLE_EQ(long_one.at(9, 100), 1);
  EXPECT_DOUBLE_EQ(long_one.at(10, 100), 1);
  EXPECT_NEAR(long_one.at(99, 100), 0.1, 1e-12);
  for (int64_t step = 11; step < 100; ++step) EXPECT_LT(long_one.at(step, 100), long_one.at(step - 1, 100));
}

TEST(RateSchedule, OneRoundOrOnlyWarmUpIsDefined) {
  for (const auto kind : {RateKind::kConstant, RateKind::kLinear, RateKind::kCosine}) {
    EXPECT_DOUBLE_EQ((RateSchedule{.kind = kind}.at(0, 1)), 1) << config::name_of(kind);
    EXPECT_DOUBLE_EQ((RateSchedule{.kind = kind, .warmup = 2}.at(1, 2)), 1) << config::name_of(kind);
  }
}

TEST(RateSchedule, RejectsAnInvalidFinalRate) {
  for (const auto* text : {"final_ratio = 0.0", "final_ratio = 1.5", "warmup_rounds = -1", "kind = 'step'"})
    EXPECT_THROW(config::read<RateSchedule>(config::Table::parse(text, "test")), Error) << text;
}

}  // namespace
}  // namespace evenkeel::train
