// Every server and client half on numbers small enough to work out by hand: the same two clients for all methods that
// combine products, and the counts, scores and gradients of the others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lora/algebra.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

const std::string kSite = "model.layers.0.self_attn.q_proj", kLayer = "model.layers.0.mlp";
using Rows = std::vector<std::vector<double>>;

at::Tensor matrix(const Rows& rows, at::ScalarType type = at::kFloat) {
  std::vector<at::Tensor> parts;
  for (const auto& row : rows) parts.push_back(at::tensor(row, at::kDouble));
  return at::stack(parts).to(type);
}

void expect_near(const at::Tensor& actual, const Rows& expected, double tolerance = 1e-6) {
  const auto wanted = matrix(expected, at::kDouble);
  ASSERT_EQ(actual.sizes(), wanted.sizes());
  EXPECT_TRUE(actual.to(at::kDouble).allclose(wanted, 0, tolerance)) << actual << "\nexpected\n" << wanted;
}

/// Two clients of equal weight, one site; rank 1 and scale 1 unless said otherwise.
struct Pair {
  explicit Pair(const std::string& name, const std::string& toml = "") : method(make_method(name, toml)) {}

  ServerView server() const {
    return {
        .sites = sites, .moe_layers = {}, .rank = rank, .scale = {.alpha = alpha, .rank = rank}, .lr = 0.1, .seed = 1};
  }
  ClientView view(const ClientProfile& client, const Common& common) {
    return {.client = client, .sites = sites, .common = common, .scale = server().scale, .seed = 1, .memory = memory};
  }
  RoundView round() const { return {.participants = {client(0), client(1)}, .weights = {.5, .5}}; }
  ClientProfile client(int64_t id) const { return {.id = id, .rank = rank, .examples = 1}; }

  /// The state after both clients sent these factors.
  ServerState aggregate(const LoraFactors& first, const LoraFactors& second, TensorMap extras = {}) {
    const auto state = method->initialize(server());
    const auto update = [&](int64_t id, const LoraFactors& factors) {
      return ClientUpdate{client(id), {.adapters = {{kSite, factors}}, .extras = extras}, 1};
    };
    auto next = method->aggregate(server(), state, round(), std::vector{update(0, first), update(1, second)});
    gain_base_delta(next, TransportDtype::kFloat32);
    return next;
  }

  std::unique_ptr<FederatedMethod> method;
  Sites sites{{kSite, {.experts = 0, .in = 2, .out = 2, .moe_layer = {}}}};
  int64_t rank = 1;
  double alpha = 1;
  TensorMap memory;
};

// B1 A1 = (1, 0)^T (1, 2), B2 A2 = (0, 1)^T (3, -1); their mean is dW.
const LoraFactors kFirst{.a = matrix({{1, 2}}), .b = matrix({{1}, {0}})};
const LoraFactors kSecond{.a = matrix({{3, -1}}), .b = matrix({{0}, {1}})};
const Rows kDelta{{.5, 1}, {1.5, -.5}};
// Its singular values, and its best approximation of rank 1.
constexpr double kLargest = 1.5962912, kSmallest = 1.0962912, kEnergyOfTheFirst = .67950549;
const Rows kBestOfRank1{{.29642383, -.05708601}, {1.53920519, -.29642383}};

at::Tensor effect_at_site(const ServerState& state) { return effect(state).at(kSite); }

TEST(TwoClients, FedItMultipliesTheMeans) {
  const auto next = Pair("fedit").aggregate(kFirst, kSecond);
  expect_near(next.global.adapters.at(kSite).a, {{2, .5}});
  expect_near(next.global.adapters.at(kSite).b, {{.5}, {.5}});
  expect_near(effect_at_site(next), {{1, .25}, {1, .25}});
}

TEST(TwoClients, FedExPutsTheResidualIntoTheBase) {
  const auto next = Pair("fedex-lora").aggregate(kFirst, kSecond);
  const auto& residual = next.global.base_delta.at(kSite);
  EXPECT_EQ(residual.rank(), 1) << "(C - 1) r";
  expect_near(delta_weight(residual), {{-.5, .75}, {.5, -.75}});
  expect_near(effect_at_site(next), kDelta);
}

TEST(TwoClients, FedExsResidualHasTheShapeOfTheWeight) {
  Pair pair("fedex-lora");
  pair.sites.at(kSite).in = 3;
  const LoraFactors first{.a = matrix({{1, 2, 0}}), .b = kFirst.b}, second{.a = matrix({{3, -1, 4}}), .b = kSecond.b};
  const auto residual = delta_weight(pair.aggregate(first, second).global.base_delta.at(kSite));
  const auto weight = at::zeros({2, 3});
  EXPECT_NO_THROW(weight + residual);
  EXPECT_ANY_THROW(weight + residual.t());
}

TEST(TwoClients, FloraStacksTheFactorsWithWeightAndScaleOnA) {
  const auto next = Pair("flora").aggregate(kFirst, kSecond);
  const auto& stacked = next.global.base_delta.at(kSite);
  expect_near(stacked.b, {{1, 0}, {0, 1}});
  expect_near(stacked.a, kDelta);
  expect_near(effect_at_site(next), kDelta);
  auto doubled = kFirst;
  doubled.scaling = 2;
  expect_near(Pair("flora").aggregate(doubled, kSecond).global.base_delta.at(kSite).a, {{1, 2}, {1.5, -.5}});
}

TEST(TwoClients, TheProductsSingularValuesComeFromTheStack) {
  const auto svd = product_svd(Pair("flora").aggregate(kFirst, kSecond).global.base_delta.at(kSite));
  expect_near(svd.s.unsqueeze(0), {{kLargest, kSmallest}}, 1e-7);
  const auto energy = svd.s.square();
  EXPECT_NEAR((energy[0] / energy.sum()).item<double>(), kEnergyOfTheFirst, 1e-8);
}

TEST(TwoClients, FloristKeepsAsManyComponentsAsTauAsksFor) {
  for (const auto& [tau, kept] : {std::pair{.5, 1}, {.6795, 1}, {.68, 2}, {.9, 2}}) {
    const auto next = Pair("florist", concat("tau = ", tau)).aggregate(kFirst, kSecond);
    EXPECT_EQ(next.memory.at("mean_rank").item<double>(), kept) << tau;
    expect_near(effect_at_site(next), kept == 1 ? kBestOfRank1 : kDelta);
  }
  EXPECT_NEAR((matrix(kDelta, at::kDouble) - matrix(kBestOfRank1, at::kDouble)).norm().item<double>(), kSmallest, 1e-7);
}

TEST(TwoClients, FlexLoraSendsTheBestFactorsOfAClientsRank) {
  Pair pair("flexlora");
  pair.alpha = 3;
  auto scaled = std::array{kFirst, kSecond};
  for (auto& factors : scaled) factors.b = factors.b / 3, factors.scaling = 3;
  const auto next = pair.aggregate(scaled[0], scaled[1]);
  const auto download = pair.method->broadcast(next, pair.client(0), pair.round());
  const auto setup = pair.method->prepare(download, pair.view(pair.client(0), next.common));
  EXPECT_EQ(setup.adapters.at(kSite).scaling, 3);
  expect_near(delta_weight(setup.adapters.at(kSite)), kBestOfRank1);
}

TEST(TwoClients, HetLoraWeighsByTheNormsOfTheProducts) {
  const auto next =
      Pair("hetlora").aggregate(kFirst, kSecond, {{"rank", at::scalar_tensor(1, at::kInt)}}).global.adapters.at(kSite);
  EXPECT_NEAR(squared_product_norm(kFirst), 5, 1e-12);
  EXPECT_NEAR(squared_product_norm(kSecond), 10, 1e-12);
  expect_near(next.a, {{2.17157288, .24264069}});
  expect_near(next.b, {{.41421356}, {.58578644}});
}

TEST(TwoClients, FfaLoraIsExactBecauseAIsCommon) {
  Pair pair("ffa-lora");
  auto next = pair.aggregate({.b = matrix({{1}, {0}})}, {.b = matrix({{0}, {3}})});
  next.common.fixed.at(kSite).a = matrix({{1, 2}});
  expect_near(effect_at_site(next), {{.5, 1}, {1.5, 3}});
}

// Zeros on both sides of a component get no gradient: dB = G A^T and dA = B^T G.
TEST(TwoClients, WhatFloristPadsIsDead) {
  Pair pair("florist", "mode = \"code\"");
  pair.rank = 2;
  pair.alpha = 2;
  auto state = pair.method->initialize(pair.server());
  state.global.adapters.at(kSite) = {.a = matrix({{1, 2}}), .b = matrix({{1}, {0}})};
  const auto download = pair.method->broadcast(state, pair.client(0), pair.round());
  auto factors = pair.method->prepare(download, pair.view(pair.client(0), state.common)).adapters.at(kSite);
  expect_near(factors.a, {{1, 2}, {0, 0}});
  expect_near(factors.b, {{1, 0}, {0, 0}});
  factors.a.requires_grad_(true), factors.b.requires_grad_(true);
  (at::matmul(factors.b, factors.a) * matrix({{1, 2}, {3, 4}})).sum().backward();
  expect_near(factors.b.grad(), {{5, 0}, {11, 0}});
  expect_near(factors.a.grad(), {{1, 2}, {0, 0}});
}

/// What client 0's factors of ones become when client 1's are zero: its weight, expert by expert. \return [1, 4]
at::Tensor weights_of_client_0(const std::string& toml) {
  Pair pair("a3smoe", toml);
  pair.sites = {{kSite, {.experts = 4, .in = 3, .out = 2, .moe_layer = kLayer}}};
  auto server = pair.server();
  server.moe_layers = {kLayer};
  server.num_experts = 4;
  const std::vector<std::vector<int64_t>> counts{{6, 2, 1, 1}, {8, 6, 4, 2}};
  std::vector<ClientUpdate> updates;
  for (int64_t id = 0; id < 2; ++id) {
    const float value = id == 0 ? 1 : 0;
    Payload payload{.adapters = {{kSite, {.a = at::full({4, 1, 3}, value), .b = at::full({4, 2, 1}, value)}}}};
    payload.extras[kLayer + ".counts"] = at::tensor(counts[static_cast<size_t>(id)], at::kInt);
    payload.extras[kLayer + ".tokens"] = at::scalar_tensor(10, at::kInt);
    updates.push_back({pair.client(id), payload, 1});
  }
  const auto next = pair.method->aggregate(server, pair.method->initialize(server), pair.round(), updates);
  const auto& [a, b, core, scaling, ranks] = next.global.adapters.at(kSite);
  EXPECT_TRUE(a.select(2, 0).equal(b.select(1, 0)));
  return a.select(2, 2).t();
}

TEST(A3Smoe, WeighsAClientsExpertByHowMuchItUsedIt) {
  expect_near(weights_of_client_0(""), {{.42857143, .25, .2, .33333333}});
  expect_near(weights_of_client_0("temperature = 2.0"), {{.36, .1, .05882353, .2}});
  expect_near(weights_of_client_0("temperature = 0.0"), {{.5, .5, .5, .5}});
}

/// The extra loss of tokens with these router scores, each choosing its K best experts.
double extra_loss(const std::string& toml, const Rows& scores, int64_t top_k) {
  Pair pair("smoe-llb", toml);
  auto client = pair.client(0);
  client.top_k = top_k;
  const auto logits_TE = matrix(scores, at::kDouble);
  const auto chosen = route(logits_TE, {.top_k = top_k}, {}, false).experts.flatten();
  const std::vector<RoutingByLayer> micro_batches{
      {{kLayer, {.router_logits = logits_TE, .counts = at::bincount(chosen, {}, 4), .tokens = logits_TE.size(0)}}}};
  const Common nothing{};
  const auto view = pair.view(client, nothing);
  LocalSetup setup;
  Metrics metrics;
  return pair.method->extra_loss({view, {}, setup, micro_batches, 0.1, metrics}).item<double>();
}

TEST(SmoeLlb, AddsTheLossesOfTwoTokensAndFourExperts) {
  const std::string balance = "llb_coef = 1.0\nz_coef = 0.0\n", z = "llb_coef = 0.0\nz_coef = 1.0";
  const double ln4 = std::log(4.0);
  const Rows apart{{ln4, 0, 0, 0}, {0, ln4, 0, 0}}, level(2, std::vector<double>(4, 0));
  EXPECT_NEAR(extra_loss(balance, apart, 1), 1.42857143, 1e-8);
  EXPECT_NEAR(extra_loss(z, apart, 1), std::pow(std::log(7.0), 2), 1e-8);
  EXPECT_NEAR(extra_loss(z, apart, 1), 3.78656631, 1e-8);
  EXPECT_NEAR(extra_loss(balance, level, 2), 1, 1e-12);
  EXPECT_NEAR(extra_loss(balance + "llb_norm = \"hf\"", level, 2), 2, 1e-12);
  EXPECT_NEAR(extra_loss(z, level, 2), 1.92181206, 1e-8);
}

TEST(FedSb, StartsFromTheSignsOfTheGradient) {
  Pair pair("fed-sb");
  pair.sites.at(kSite).in = 3;
  auto server = pair.server();
  server.lr = 2e-4;
  server.gradient_sum = [](const std::string&, int64_t, SampleFrom) { return matrix({{1, -2, 3}, {-4, 5, -6}}); };
  const auto state = pair.method->initialize(server);
  const auto& fixed = state.common.fixed.at(kSite);
  const double root_half = std::sqrt(.5), root_third = std::sqrt(1.0 / 3);
  expect_near(fixed.b, {{root_half}, {-root_half}});
  expect_near(fixed.a, {{-root_third, root_third, -root_third}});
  expect_near(state.global.adapters.at(kSite).core, {{4.89897949e-4}}, 1e-10);
  expect_near(effect_at_site(state), {{-2e-4, 2e-4, -2e-4}, {2e-4, -2e-4, 2e-4}}, 1e-10);
}

TEST(FedSb, AveragesTheCores) {
  Pair pair("fed-sb");
  auto server = pair.server();
  server.gradient_sum = [](const std::string&, int64_t, SampleFrom) { return matrix({{1, 1}, {1, 1}}); };
  const RoundView round{.participants = {pair.client(0), pair.client(1)}, .weights = {.25, .75}};
  std::vector<ClientUpdate> updates;
  for (const double core : {.001, .003})
    updates.push_back({round.participants[updates.size()], {.adapters = {{kSite, {.core = matrix({{core}})}}}}, 1});
  const auto next = pair.method->aggregate(server, pair.method->initialize(server), round, updates);
  expect_near(next.global.adapters.at(kSite).core, {{.0025}}, 1e-10);
}

}  // namespace
}  // namespace evenkeel
