#include "one_site.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tiny_federation.h"

namespace evenkeel {

at::Tensor matrix(const Rows& rows, at::ScalarType type) {
  std::vector<at::Tensor> parts;
  for (const auto& row : rows) parts.push_back(at::tensor(row, at::kDouble));
  return at::stack(parts).to(type);
}

void expect_near(const at::Tensor& actual, const Rows& expected, double tolerance) {
  expect_close(actual, matrix(expected, at::kDouble), tolerance);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_TRUE(actual.to(at::kDouble).allclose(expected.to(at::kDouble), 0, tolerance)) << actual << "\nexpected\n"
                                                                                       << expected;
}

void expect_not_mistaken(const at::Tensor& actual, const at::Tensor& right, const at::Tensor& mistaken,
                         double tolerance) {
  expect_close(actual, right, tolerance);
  const auto difference = (mistaken.to(at::kDouble) - right.to(at::kDouble)).abs().max().item<double>();
  EXPECT_GT(difference, 1e3 * tolerance) << "the mistake makes no difference here: " << mistaken;
}

lora::LoraFactors first_update() { return {.a = matrix({{1, 2}}), .b = matrix({{1}, {0}})}; }
lora::LoraFactors second_update() { return {.a = matrix({{3, -1}}), .b = matrix({{0}, {1}})}; }

OneSite::OneSite(const std::string& name, const std::string& toml)
    : method(make_method(name, toml)), sites{{kSite, {.experts = 0, .in = 2, .out = 2, .moe_layer = {}}}} {}

methods::ServerView OneSite::server() const {
  return {.sites = sites,
          .moe_layers = {},
          .rank = rank,
          .scale = {.alpha = alpha, .rank = rank, .mode = scale_mode},
          .lr = 0.1,
          .seed = 1,
          .gradient_sum = gradient_sum};
}

methods::ClientView OneSite::view(const methods::ClientProfile& client, const methods::Common& common) {
  return {.client = client, .sites = sites, .common = common, .scale = server().scale, .seed = 1, .memory = memory};
}

methods::RoundView OneSite::round() const {
  methods::RoundView round{.weights = weights};
  for (size_t c = 0; c < weights.size(); ++c) round.participants.push_back(client(static_cast<int64_t>(c)));
  return round;
}

methods::ServerState OneSite::aggregate(const std::vector<lora::LoraFactors>& sent) const {
  return aggregate(method->initialize(server()), sent);
}

methods::ServerState OneSite::aggregate(const methods::ServerState& state,
                                        const std::vector<lora::LoraFactors>& sent) const {
  const auto round = this->round();
  std::vector<methods::ClientUpdate> updates;
  for (size_t c = 0; c < sent.size(); ++c) {
    lora::Payload payload{.adapters = {{kSite, sent[c]}}};
    payload.extras["rank"] = at::scalar_tensor(sent[c].rank(), at::kInt);
    updates.push_back({round.participants[c], std::move(payload), 1});
  }
  auto next = method->aggregate(server(), state, round, updates);
  methods::add_base_delta(next, lora::TransportDtype::kFloat32);
  return next;
}

lora::LoraFactors OneSite::prepared(const methods::ServerState& state, const methods::ClientProfile& client) {
  return method->prepare(method->broadcast(state, client, round()), view(client, state.common)).adapters.at(kSite);
}

}  // namespace evenkeel
