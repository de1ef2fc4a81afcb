#include "comparison/bias_intervals.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"

namespace evenkeel::comparison {
namespace {

TEST(BiasIntervals, TheJackknifeOfAMeanIsTheTInterval) {
  const std::vector<double> values = {3.0, 1.5, 4.25, 0.5, 2.0};
  std::vector<double> left_out;
  for (const double value : values) left_out.push_back((5 * mean_of(values) - value) / 4);
  const auto found = jackknife_interval(mean_of(values), left_out).value();
  const auto expected = t_interval(values).value();
  EXPECT_NEAR(found.low, expected.low, 1e-12);
  EXPECT_NEAR(found.high, expected.high, 1e-12);
  EXPECT_FALSE(jackknife_interval(1.0, std::vector<double>{1.0}).has_value());
}

fed::GradientBias with_bias(double bias, std::vector<double> left_out, int64_t top_k = 1) {
  fed::GradientBias one{.layer = "all", .top_k = top_k, .value = {.bias = bias}};
  for (const double value : left_out) one.left_out.push_back({.bias = value});
  return one;
}

TEST(BiasIntervals, OneRunHasAnIntervalOverRowsAndSeveralOverRuns) {
  const std::vector<std::vector<fed::GradientBias>> runs = {
      {with_bias(4.0, {3.9, 4.1, 4.3})}, {with_bias(5.0, {4.9, 5.2, 5.3})}, {with_bias(9.0, {9.9, 8.2, 8.3})}};
  const auto one = bias_rows(std::span(runs).first(1))[0].measures[0];
  EXPECT_EQ(one.value, 4.0);
  EXPECT_NEAR(one.interval->low, jackknife_interval(4.0, std::vector<double>{3.9, 4.1, 4.3})->low, 1e-12);
  const auto all = bias_rows(runs)[0].measures[0];
  EXPECT_EQ(all.value, 6.0);
  EXPECT_NEAR(all.interval->high, t_interval(std::vector<double>{4, 5, 9})->high, 1e-12);
}

TEST(BiasIntervals, WhatARunDoesNotHaveIsNotEstimated) {
  auto none = with_bias(4.0, {3.9, 4.1});
  none.value.bias.reset();
  const std::vector<std::vector<fed::GradientBias>> runs = {{with_bias(4.0, {})}, {none}};
  EXPECT_FALSE(bias_rows(runs)[0].measures[0].value.has_value());
  EXPECT_FALSE(bias_rows(std::span(runs).first(1))[0].measures[0].interval.has_value()) << "a single batch";
}

TEST(BiasIntervals, RunsOfOtherNumbersOfExpertsAreRefused) {
  const std::vector<std::vector<fed::GradientBias>> runs = {{with_bias(4.0, {})}, {with_bias(4.0, {}, 2)}};
  EXPECT_THROW(bias_rows(runs), Error);
}

}  // namespace
}  // namespace evenkeel::comparison
