#include "train/pretraining.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace evenkeel {
namespace {

RoutingByLayer one_layer(const at::Tensor& logits_TE, const at::Tensor& counts_E) {
  RoutingStats stats;
  stats.router_logits = logits_TE;
  stats.counts = counts_E;
  stats.tokens = logits_TE.size(0);
  return {{"model.layers.0.mlp", stats}};
}

TEST(Schedule, WarmsUpLinearlyAndEndsAtTheFinalRatio) {
  EXPECT_DOUBLE_EQ(schedule(0, 100, 10, 0.1), 0.1);
  EXPECT_DOUBLE_EQ(schedule(9, 100, 10, 0.1), 1.0);
  EXPECT_DOUBLE_EQ(schedule(10, 100, 10, 0.1), 1.0);
  EXPECT_NEAR(schedule(99, 100, 10, 0.1), 0.1, 1e-12);
  for (int64_t step = 11; step < 100; ++step) EXPECT_LT(schedule(step, 100, 10, 0.1), schedule(step - 1, 100, 10, 0.1));
}

TEST(LoadBalanceLoss, IsOneWhenBalancedAndTheNumberOfExpertsWhenCollapsed) {
  const auto balanced = one_layer(at::zeros({6, 4}), at::tensor({3, 3, 3, 3}, at::kLong));
  EXPECT_NEAR(load_balance_loss(balanced).item<double>(), 1.0, 1e-6);
  auto logits = at::full({6, 4}, -1e4);
  logits.select(1, 2).zero_();
  const auto collapsed = one_layer(logits, at::tensor({0, 0, 6, 0}, at::kLong));
  EXPECT_NEAR(load_balance_loss(collapsed).item<double>(), 4.0, 1e-6);
}

// Two tokens with logits (ln 4, 0, 0, 0) and (0, ln 4, 0, 0), one expert each: worked out by hand.
TEST(RouterLosses, EqualTheHandComputedValues) {
  const double l = std::log(4.0);
  const auto routing =
      one_layer(at::tensor({l, 0., 0., 0., 0., l, 0., 0.}).view({2, 4}), at::tensor({1, 1, 0, 0}, at::kLong));
  EXPECT_NEAR(load_balance_loss(routing).item<double>(), 1.42857143, 1e-7);
  EXPECT_NEAR(router_z_loss(routing).item<double>(), 3.78656631, 1e-7);
}

TEST(PretrainConfig, NamesTheKeyThatIsOutOfRange) {
  PretrainConfig config;
  config.model.config = "x.json";
  config.train.batch_size = 0;
  try {
    config.check();
    FAIL() << "batch_size 0 was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("train.batch_size is 0"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace evenkeel
