#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tiny_federation.h"

namespace evenkeel::methods {

MethodEntry fedit_momentum();

namespace {

/// B of the only client, after each round in which it sends `sent`.
std::vector<double> server_after(const std::vector<double>& sent, const std::string& toml) {
  const lora::Sites sites{{"q_proj", {.experts = 0, .in = 3, .out = 2, .moe_layer = {}}}};
  const ServerView server{.sites = sites, .moe_layers = {}, .rank = 1, .scale = {.alpha = 1, .rank = 1}};
  const RoundView round{.participants = {{.id = 0}}, .weights = {1.0}};
  const auto method = make_method("fedit-momentum", toml);
  auto state = method->initialize(server);
  std::vector<double> seen;
  for (const double value : sent) {
    const lora::LoraFactors factors{.a = at::zeros({1, 3}), .b = at::full({2, 1}, value)};
    const std::vector<ClientUpdate> updates{{round.participants[0], {.adapters = {{"q_proj", factors}}}, 1}};
    state = method->aggregate(server, state, round, updates);
    seen.push_back(state.global.adapters.at("q_proj").b[0][0].item<double>());
  }
  return seen;
}

TEST(FedItMomentum, RepeatsAShareOfTheLastMove) {
  EXPECT_EQ(server_after({1, 1, 1.5}, "momentum = 0.5"), (std::vector<double>{1, 1.5, 1.75}));
  EXPECT_EQ(server_after({1, 1, 1.5}, "momentum = 0.0"), (std::vector<double>{1, 1, 1.5}));
}

TEST(FedItMomentum, RefusesAMomentumAboveOne) { EXPECT_THROW(make_method("fedit-momentum", "momentum = 1.5"), Error); }

}  // namespace
}  // namespace evenkeel::methods

int main(int argc, char** argv) {
  evenkeel::methods::add_method(evenkeel::methods::fedit_momentum());
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
