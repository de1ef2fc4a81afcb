#include "nn/moe/balance_losses.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <vector>

#include "base/plain/error.h"
#include "nn/testing.h"

namespace evenkeel::nn {
namespace {

RoutingByLayer one_layer(const at::Tensor& logits_TE, const at::Tensor& counts_E) {
  RoutingStats stats;
  stats.router_logits = logits_TE;
  stats.counts = counts_E;
  stats.tokens = logits_TE.size(0);
  return {{"model.layers.0.mlp", stats}};
}

TEST(LoadBalanceLoss, IsOneWhenBalancedAndTheNumberOfExpertsWhenCollapsed) {
  const auto balanced = one_layer(at::zeros({6, 4}), at::tensor({3, 3, 3, 3}, at::kLong));
  EXPECT_NEAR(load_balance_loss(balanced).item<double>(), 1.0, 1e-6);
  auto logits = at::full({6, 4}, -1e4);
  logits.select(1, 2).zero_();
  const auto collapsed = one_layer(logits, at::tensor({0, 0, 6, 0}, at::kLong));
  EXPECT_NEAR(load_balance_loss(collapsed).item<double>(), 4.0, 1e-6);
}

// Two tokens have logits (ln 4, 0, 0, 0) and (0, ln 4, 0, 0) and one expert each. The values were computed by hand.
TEST(RouterLosses, EqualTheHandComputedValues) {
  const double l = std::log(4.0);
  const auto routing =
      one_layer(at::tensor({l, 0., 0., 0., 0., l, 0., 0.}).view({2, 4}), at::tensor({1, 1, 0, 0}, at::kLong));
  EXPECT_NEAR(load_balance_loss(routing).item<double>(), 1.42857143, 1e-7);
  EXPECT_NEAR(router_z_loss(routing).item<double>(), 3.78656631, 1e-7);
}

/// Returns the value of a loss and its gradients by layer.
std::vector<at::Tensor> with_gradients(at::Tensor (*loss)(const StackedRouting&), const RoutingByLayer& routing) {
  std::vector<at::Tensor> logits, result;
  for (const auto& [layer, stats] : routing) logits.push_back(stats.router_logits);
  result.push_back(loss(routing));
  for (const auto& gradient : torch::autograd::grad({result[0]}, logits)) result.push_back(gradient);
  return result;
}

TEST(RouterLosses, OfSeveralLayersAreTheMeansOfTheLayersLosses) {
  constexpr int64_t kLayers = 5;
  RoutingByLayer all;
  for (int64_t l = 0; l < kLayers; ++l) {
    auto& stats = all[concat("model.layers.", l, ".mlp")];
    stats.router_logits = testing::random_tensor({7, 4}, static_cast<uint64_t>(l)).requires_grad_(true);
    stats.counts = at::tensor({l, 3 * l + 1, 13 - 4 * l + 3 * kLayers, int64_t{0}}, at::kLong);
    stats.tokens = 7;
  }
  for (auto* loss : {&load_balance_loss, &router_z_loss}) {
    const auto together = with_gradients(loss, all);
    double sum = 0;
    size_t i = 1;
    for (const auto& [layer, stats] : all) {
      const auto alone = with_gradients(loss, {{layer, stats}});
      sum += alone[0].item<double>();
      EXPECT_LT(testing::max_difference(together[i++] * kLayers, alone[1]), 1e-14) << layer;
    }
    EXPECT_NEAR(together[0].item<double>(), sum / kLayers, 1e-13);
  }
}

// A layer whose logits require no gradient adds a constant, which does not change the gradients of the others.
TEST(RouterLosses, AreTakenOverTheLayersWithLogitsAndDividedByAll) {
  auto routing = one_layer(testing::random_tensor({7, 4}, 3).requires_grad_(true), at::tensor({2, 5, 0, 7}, at::kLong));
  const auto first = routing.begin()->second;
  routing["model.layers.1.mlp"] = {
      .router_logits = testing::random_tensor({7, 4}, 4), .counts = at::tensor({6, 1, 4, 3}, at::kLong), .tokens = 7};
  auto without = routing;
  without["model.layers.1.mlp"].router_logits = at::Tensor();
  for (auto* loss : {&load_balance_loss, &router_z_loss, &pooled_load_balance_loss}) {
    const auto gradient = [&](const RoutingByLayer& of) {
      return torch::autograd::grad({loss(of)}, {first.router_logits})[0];
    };
    EXPECT_LT(testing::max_difference(gradient(without), gradient(routing)), 1e-14);
    EXPECT_GT(gradient(routing).abs().max().item<double>(), 1e-3);
  }
  without.begin()->second.router_logits = at::Tensor();
  EXPECT_FALSE(router_z_loss(without).defined());
}

// Two layers are unbalanced in opposite ways, with two experts per token. Each alone is far from balance; pooled they
// are balanced.
TEST(LoadBalanceLoss, PoolsTheCountsOfAllLayers) {
  const auto first = at::tensor({2., 2., 0.}).repeat({5, 1}), second = at::tensor({0., 0., 2.}).repeat({5, 1});
  RoutingByLayer routing = one_layer(first, at::tensor({5, 5, 0}, at::kLong));
  EXPECT_GT(pooled_load_balance_loss(routing).item<double>(), 2.5);
  routing["model.layers.1.mlp"] = one_layer(second, at::tensor({0, 5, 5}, at::kLong)).begin()->second;
  const auto shares = at::stack({first[0].softmax(0), second[0].softmax(0)}).mean(0);
  const auto expected = 3 * (shares * at::tensor({0.5, 1., 0.5})).sum();
  EXPECT_NEAR(pooled_load_balance_loss(routing).item<double>(), expected.item<double>(), 1e-6);
  EXPECT_FALSE(pooled_load_balance_loss(RoutingByLayer()).defined());
  EXPECT_FALSE(load_balance_loss(RoutingByLayer()).defined());
}

}  // namespace
}  // namespace evenkeel::nn
