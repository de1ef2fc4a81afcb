#include "nn/moe/utilization.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/plain/error.h"

namespace evenkeel::nn {
namespace {

at::Tensor row(std::initializer_list<double> values) { return at::tensor(std::vector<double>(values), at::kDouble); }

TEST(Utilization, WeighsClientsByTheirShareAndTokens) {
  const std::vector<at::Tensor> counts{at::tensor({10, 0, 30}, at::kLong), at::tensor({4, 4, 0}, at::kLong)};
  const std::vector<int64_t> tokens{20, 8};
  const std::vector<double> weights{0.75, 0.25};
  const auto u = utilization(counts, tokens, weights);
  EXPECT_TRUE(at::allclose(u, row({0.5, 0.125, 1.125}))) << u;
  EXPECT_NEAR(u.sum().item<double>(), 0.75 * 2 + 0.25 * 1, 1e-12);
}

TEST(Utilization, RejectsAClientWithoutTokens) {
  const std::vector<at::Tensor> counts{at::tensor({1, 2}, at::kLong)};
  const std::vector<int64_t> tokens{0};
  const std::vector<double> weights{1.0};
  EXPECT_THROW(utilization(counts, tokens, weights), Error);
}

TEST(Utilization, MetricsOfAKnownVectorAreExact) {
  const auto u = row({.7, .4, .25, .15});
  EXPECT_NEAR(entropy(u), 1.23701867, 1e-8);
  EXPECT_NEAR(gini(u), 0.3, 1e-12);
  EXPECT_EQ(dead_experts(u), 0);
}

TEST(Utilization, EqualUseIsLnMAndGiniZero) {
  const auto u = at::full({5}, 0.3, at::kDouble);
  EXPECT_NEAR(entropy(u), std::log(5.0), 1e-12);
  EXPECT_NEAR(gini(u), 0.0, 1e-12);
}

TEST(Utilization, SaturatedExpertsGiveEntropyLnKAndDeadExperts) {
  for (int k = 1; k <= 7; ++k) {
    auto u = at::zeros({7}, at::kDouble);
    u.narrow(0, 0, k).fill_(1.0);
    EXPECT_NEAR(entropy(u), std::log(k), 1e-12);
    EXPECT_NEAR(gini(u), (7.0 - k) / 7.0, 1e-12);
    EXPECT_EQ(dead_experts(u), 7 - k);
    EXPECT_EQ(nearly_dead_experts(u), 7 - k);
  }
}

TEST(Utilization, JointEntropyIsLnLayersPlusTheirMean) {
  const auto first = row({.7, .4, .25, .15}), second = row({1.2, .1, .1, .1});
  EXPECT_NEAR(entropy(at::cat({first, second})), std::log(2.0) + (entropy(first) + entropy(second)) / 2, 1e-12);
}

TEST(Utilization, UnnormalisedEntropyAtBalanceIsKLogEOverK) {
  const auto u = at::full({64}, 3.75 / 64, at::kDouble);
  EXPECT_NEAR(entropy_unnormalized(u), 3.75 * std::log(64 / 3.75), 1e-10);
}

TEST(Utilization, GiniEqualsItsDefinition) {
  const auto u = row({.05, 2, .3, .3, 0, 1.1});
  double differences = 0;
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 6; ++j) differences += std::abs(u[i].item<double>() - u[j].item<double>());
  EXPECT_NEAR(gini(u), differences / (2 * 6 * u.sum().item<double>()), 1e-12);
  EXPECT_EQ(nearly_dead_experts(u), 2);
}

TEST(Utilization, WithoutRoutedTokensMetricsAreZero) {
  EXPECT_EQ(entropy(at::zeros({4})), 0.0);
  EXPECT_EQ(gini(at::zeros({4})), 0.0);
}

}  // namespace
}  // namespace evenkeel::nn
