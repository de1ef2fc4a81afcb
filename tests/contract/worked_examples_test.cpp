// Checks every method's server and client against hand-computed numbers. Methods that combine products share the same
// two clients. The others use given counts, scores and gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lora/algebra.h"
#include "one_site.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

const lora::LoraFactors kFirst = first_update(), kSecond = second_update();
// Singular values of their mean, the energy of the first one, and the best approximation of rank 1.
constexpr double kLargest = 1.5962912, kSmallest = 1.0962912, kEnergyOfTheFirst = .67950549;
const Rows kBestOfRank1{{.29642383, -.05708601}, {1.53920519, -.29642383}};

at::Tensor effect_at_site(const methods::ServerState& state) { return effect(state).at(kSite); }

TEST(TwoClients, FedItMultipliesTheMeans) {
  const auto next = OneSite("fedit").aggregate({kFirst, kSecond});
  expect_near(next.global.adapters.at(kSite).a, {{2, .5}});
  expect_near(next.global.adapters.at(kSite).b, {{.5}, {.5}});
  expect_near(effect_at_site(next), {{1, .25}, {1, .25}});
}

TEST(TwoClients, FedExPutsTheResidualIntoTheBase) {
  const auto next = OneSite("fedex-lora").aggregate({kFirst, kSecond});
  const auto& residual = next.global.base_delta.at(kSite);
  EXPECT_EQ(residual.rank(), 1) << "(C - 1) r";
  expect_near(lora::delta_weight(residual), {{-.5, .75}, {.5, -.75}});
  expect_near(effect_at_site(next), kMeanUpdate);
}

TEST(TwoClients, FedExResidualHasTheShapeOfTheWeight) {
  OneSite world("fedex-lora");
  world.sites.at(kSite).in = 3;
  const lora::LoraFactors first{.a = matrix({{1, 2, 0}}), .b = kFirst.b},
      second{.a = matrix({{3, -1, 4}}), .b = kSecond.b};
  const auto residual = lora::delta_weight(world.aggregate({first, second}).global.base_delta.at(kSite));
  const auto weight = at::zeros({2, 3});
  EXPECT_NO_THROW(weight + residual);
  EXPECT_ANY_THROW(weight + residual.t());
}

TEST(TwoClients, FloraStacksTheFactorsWithWeightAndScaleOnA) {
  const auto next = OneSite("flora").aggregate({kFirst, kSecond});
  const auto& stacked = next.global.base_delta.at(kSite);
  expect_near(stacked.b, {{1, 0}, {0, 1}});
  expect_near(stacked.a, kMeanUpdate);
  expect_near(effect_at_site(next), kMeanUpdate);
  auto doubled = kFirst;
  doubled.scaling = 2;
  expect_near(OneSite("flora").aggregate({doubled, kSecond}).global.base_delta.at(kSite).a, {{1, 2}, {1.5, -.5}});
}

TEST(TwoClients, SingularValuesAreComputedFromTheStack) {
  const auto svd = lora::product_svd(OneSite("flora").aggregate({kFirst, kSecond}).global.base_delta.at(kSite));
  expect_near(svd.s.unsqueeze(0), {{kLargest, kSmallest}}, 1e-7);
  const auto energy = svd.s.square();
  EXPECT_NEAR((energy[0] / energy.sum()).item<double>(), kEnergyOfTheFirst, 1e-8);
}

TEST(TwoClients, FloristKeepsComponentsUpToTheEnergyTau) {
  for (const auto& [tau, kept] : {std::pair{.5, 1}, {.6795, 1}, {.68, 2}, {.9, 2}}) {
    const auto next = OneSite("florist", concat("tau = ", tau)).aggregate({kFirst, kSecond});
    EXPECT_EQ(next.memory.at("mean_rank").item<double>(), kept) << tau;
    expect_near(effect_at_site(next), kept == 1 ? kBestOfRank1 : kMeanUpdate);
  }
  EXPECT_NEAR((matrix(kMeanUpdate, at::kDouble) - matrix(kBestOfRank1, at::kDouble)).norm().item<double>(), kSmallest,
              1e-7);
}

TEST(TwoClients, FlexLoraSendsTheBestFactorsOfAClientsRank) {
  OneSite world("flexlora");
  world.alpha = 3;
  auto scaled = std::array{kFirst, kSecond};
  for (auto& factors : scaled) factors.b = factors.b / 3, factors.scaling = 3;
  const auto next = world.aggregate({scaled[0], scaled[1]});
  const auto download = world.method->broadcast(next, world.client(0), world.round());
  const auto setup = world.method->prepare(download, world.view(world.client(0), next.common));
  EXPECT_EQ(setup.adapters.at(kSite).scaling, 3);
  expect_near(lora::delta_weight(setup.adapters.at(kSite)), kBestOfRank1);
}

TEST(TwoClients, HetLoraWeighsByTheNormsOfTheProducts) {
  const auto next = OneSite("hetlora").aggregate({kFirst, kSecond}).global.adapters.at(kSite);
  EXPECT_NEAR(lora::squared_product_norm(kFirst), 5, 1e-12);
  EXPECT_NEAR(lora::squared_product_norm(kSecond), 10, 1e-12);
  expect_near(next.a, {{2.17157288, .24264069}});
  expect_near(next.b, {{.41421356}, {.58578644}});
}

TEST(TwoClients, HetLoraLosesOrKeepsComponentsThatNeitherHolds) {
  for (const bool keep : {false, true}) {
    const OneSite world("hetlora", keep ? "unused_rank = \"keep\"" : "unused_rank = \"zero\"");
    auto state = world.method->initialize(world.server());
    state.global.adapters.at(kSite) = {.a = matrix({{1, 2}, {3, 4}}), .b = matrix({{5, 6}, {7, 8}})};
    const auto next = world.aggregate(state, {kFirst, kSecond}).global.adapters.at(kSite);
    expect_near(next.a, {{2.17157288, .24264069}, {keep ? 3. : 0., keep ? 4. : 0.}});
    expect_near(next.b, {{.41421356, keep ? 6. : 0.}, {.58578644, keep ? 8. : 0.}});
  }
}

TEST(TwoClients, FfaLoraIsExactBecauseAIsCommon) {
  OneSite world("ffa-lora");
  auto next = world.aggregate({{.b = matrix({{1}, {0}})}, {.b = matrix({{0}, {3}})}});
  next.common.fixed.at(kSite).a = matrix({{1, 2}});
  expect_near(effect_at_site(next), {{.5, 1}, {1.5, 3}});
}

// A component with zeros on both sides gets no gradient: dB = G A^T and dA = B^T G.
TEST(TwoClients, FloristPaddingGetsNoGradient) {
  OneSite world("florist", "mode = \"code\"");
  world.rank = 2;
  world.alpha = 2;
  auto state = world.method->initialize(world.server());
  state.global.adapters.at(kSite) = {.a = matrix({{1, 2}}), .b = matrix({{1}, {0}})};
  const auto download = world.method->broadcast(state, world.client(0), world.round());
  auto factors = world.method->prepare(download, world.view(world.client(0), state.common)).adapters.at(kSite);
  expect_near(factors.a, {{1, 2}, {0, 0}});
  expect_near(factors.b, {{1, 0}, {0, 0}});
  factors.a.requires_grad_(true), factors.b.requires_grad_(true);
  (at::matmul(factors.b, factors.a) * matrix({{1, 2}, {3, 4}})).sum().backward();
  expect_near(factors.b.grad(), {{5, 0}, {11, 0}});
  expect_near(factors.a.grad(), {{1, 2}, {0, 0}});
}

/// Returns what client 0's factors of ones become if client 1's are zero: its weight per expert. \return [1, 4]
/// \param top_ks  K of both clients; empty: that of the fixture
at::Tensor weights_of_client_0(const std::string& toml, const std::vector<int64_t>& top_ks = {}) {
  OneSite world("a3smoe", toml);
  world.sites = {{kSite, {.experts = 4, .in = 3, .out = 2, .moe_layer = kLayer}}};
  auto server = world.server();
  server.moe_layers = {kLayer};
  server.num_experts = 4;
  const std::vector<std::vector<int64_t>> counts{{6, 2, 1, 1}, {8, 6, 4, 2}};
  std::vector<methods::ClientUpdate> updates;
  for (int64_t id = 0; id < 2; ++id) {
    const float value = id == 0 ? 1 : 0;
    lora::Payload payload{.adapters = {{kSite, {.a = at::full({4, 1, 3}, value), .b = at::full({4, 2, 1}, value)}}}};
    payload.extras[kLayer + ".counts"] = at::tensor(counts[static_cast<size_t>(id)], at::kInt);
    payload.extras[kLayer + ".tokens"] = at::scalar_tensor(10, at::kInt);
    updates.push_back({world.client(id), payload, 1});
    if (!top_ks.empty()) updates.back().client.top_k = top_ks[static_cast<size_t>(id)];
  }
  const auto next = world.method->aggregate(server, world.method->initialize(server), world.round(), updates);
  const auto& [a, b, core, scaling, ranks] = next.global.adapters.at(kSite);
  EXPECT_TRUE(a.select(2, 0).equal(b.select(1, 0)));
  return a.select(2, 2).t();
}

TEST(A3Smoe, WeighsExpertsByTheirUseOnEachClient) {
  expect_near(weights_of_client_0(""), {{.42857143, .25, .2, .33333333}});
  expect_near(weights_of_client_0("temperature = 2.0"), {{.36, .1, .05882353, .2}});
  expect_near(weights_of_client_0("temperature = 0.0"), {{.5, .5, .5, .5}});
}

// Client 0: 10 tokens, K = 1; client 1: 10 tokens, K = 2. Per token 0.6 against 0.8 (weight 0.6 / 1.4); per selection
// 0.6 / 1 against 0.8 / 2 (weight 0.6 / 1.0).
TEST(A3Smoe, DividesByTheExpertsPerTokenIfTheFrequencyIsPerSelection) {
  const std::string per_selection = "frequency = \"per_selection\"";
  expect_near(weights_of_client_0("frequency = \"per_token\"", {1, 2}), {{.42857143, .25, .2, .33333333}});
  expect_near(weights_of_client_0(per_selection, {1, 2}), {{.6, .4, .33333333, .5}});
  expect_near(weights_of_client_0(per_selection, {3, 3}), {{.42857143, .25, .2, .33333333}});  // equal K cancels
  expect_near(weights_of_client_0(per_selection + "\ntemperature = 2.0", {1, 2}), {{.69230769, .30769231, .2, .5}});
}

/// Returns the extra loss of tokens with these router scores, each of which selects its K best experts.
double extra_loss(const std::string& toml, const Rows& scores, int64_t top_k) {
  OneSite world("smoe-llb", toml);
  auto client = world.client(0);
  client.top_k = top_k;
  const auto logits_TE = matrix(scores, at::kDouble);
  const auto chosen = nn::route(logits_TE, {.top_k = top_k}, {}, false).experts.flatten();
  const std::vector<nn::RoutingByLayer> micro_batches{
      {{kLayer, {.router_logits = logits_TE, .counts = at::bincount(chosen, {}, 4), .tokens = logits_TE.size(0)}}}};
  const methods::Common nothing{};
  const auto view = world.view(client, nothing);
  methods::LocalSetup setup;
  methods::Metrics metrics;
  return world.method->extra_loss({view, {}, setup, micro_batches, 0.1, metrics}).item<double>();
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
  EXPECT_NEAR(extra_loss(balance + "llb_norm = \"sum\"", level, 2), 1, 1e-12) << "one layer";
  EXPECT_NEAR(extra_loss(z, level, 2), 1.92181206, 1e-8);
}

TEST(FedSb, InitialisesFromTheSignsOfTheGradient) {
  OneSite world("fed-sb");
  world.sites.at(kSite).in = 3;
  auto server = world.server();
  server.lr = 2e-4;
  server.gradient_sum = [](const std::string&, const methods::GradientSample&) {
    return matrix({{1, -2, 3}, {-4, 5, -6}});
  };
  const auto state = world.method->initialize(server);
  const auto& fixed = state.common.fixed.at(kSite);
  const double root_half = std::sqrt(.5), root_third = std::sqrt(1.0 / 3);
  expect_near(fixed.b, {{root_half}, {-root_half}});
  expect_near(fixed.a, {{-root_third, root_third, -root_third}});
  expect_near(state.global.adapters.at(kSite).core, {{4.89897949e-4}}, 1e-10);
  expect_near(effect_at_site(state), {{-2e-4, 2e-4, -2e-4}, {2e-4, -2e-4, 2e-4}}, 1e-10);
}

TEST(FedSb, AveragesTheCores) {
  OneSite world("fed-sb");
  auto server = world.server();
  server.gradient_sum = [](const std::string&, const methods::GradientSample&) { return matrix({{1, 1}, {1, 1}}); };
  const methods::RoundView round{.participants = {world.client(0), world.client(1)}, .weights = {.25, .75}};
  std::vector<methods::ClientUpdate> updates;
  for (const double core : {.001, .003})
    updates.push_back({round.participants[updates.size()], {.adapters = {{kSite, {.core = matrix({{core}})}}}}, 1});
  const auto next = world.method->aggregate(server, world.method->initialize(server), round, updates);
  expect_near(next.global.adapters.at(kSite).core, {{.0025}}, 1e-10);
}

}  // namespace
}  // namespace evenkeel
