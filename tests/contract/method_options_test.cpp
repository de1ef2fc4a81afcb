// Checks options that several methods have.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "one_site.h"
#include "tiny_federation.h"

namespace evenkeel {
namespace {

/// Returns the scaling of a client of rank 2 if the largest rank is 4 and alpha is 12.
double scale_at_rank_2(const std::string& name, const std::string& toml, lora::LoraScaleMode mode) {
  OneSite world(name, toml);
  world.rank = 4, world.alpha = 12, world.scale_mode = mode;
  const auto factors = world.prepared(world.method->initialize(world.server()), {.id = 0, .rank = 2});
  EXPECT_EQ(factors.rank(), 2) << name;
  return factors.scaling;
}

TEST(LoraScaleModes, DivideAlphaByTheClientsRankOrByTheLargest) {
  for (const auto& [name, toml] : {std::pair{"hetlora", ""},
                                   {"flexlora", ""},
                                   {"flora", ""},
                                   {"florist", ""},
                                   {"flora", "fresh_init = \"shared\""},
                                   {"florist", "mode = \"code\""}}) {
    EXPECT_DOUBLE_EQ(scale_at_rank_2(name, toml, lora::LoraScaleMode::kFixedAlpha), 6) << name << toml;
    EXPECT_DOUBLE_EQ(scale_at_rank_2(name, toml, lora::LoraScaleMode::kConstScale), 3) << name << toml;
  }
}

TEST(GateNorms, EveryMethodUsesTheConfiguredGateNorm) {
  TinyFederation world;
  for (const auto& entry : methods::methods())
    for (const auto gate_norm : {nn::GateNorm::kCheckpoint, nn::GateNorm::kRenormSelected, nn::GateNorm::kSoftmaxAll}) {
      world.gate_norm = gate_norm;
      const auto method = make_method(entry.name);
      const auto state = method->initialize(world.server());
      const auto download = method->broadcast(state, world.clients[0], world.round(0));
      const auto setup = method->prepare(download, world.view(world.clients[0], 0, state.common));
      EXPECT_EQ(setup.router.gate_norm, gate_norm) << entry.name;
    }
}

TEST(GateNorms, ChangeTheRunOfEveryMethod) {
  for (const auto& entry : methods::methods()) {
    TinyFederation world;
    const auto renormalised = effect(world.run(*make_method(entry.name), 1));
    world.gate_norm = nn::GateNorm::kCheckpoint;
    const auto native = effect(world.run(*make_method(entry.name), 1));
    bool any = false;
    for (const auto& [site, delta] : native) any = any || !delta.equal(renormalised.at(site));
    EXPECT_TRUE(any) << entry.name;
  }
}

TEST(GateNorms, DefaultToTheCheckpointExceptForSparsityMethods) {
  for (const auto& entry : methods::methods())
    EXPECT_EQ(entry.gate_norm, entry.family == methods::MethodFamily::kSparsity ? nn::GateNorm::kRenormSelected
                                                                                : nn::GateNorm::kCheckpoint)
        << entry.name;
}

TEST(Transport, Bfloat16ChangesUpdatesOnlyByRounding) {
  const TinyFederation world;
  for (const auto& entry : methods::methods()) {
    const auto method = make_method(entry.name, entry.name == "florist" ? "tau = 1.0" : "");
    const auto state = method->initialize(world.server());
    const auto round = world.round(0);
    auto updates = world.train_all(*method, state, round);
    const auto exact = effect(world.aggregate(*method, state, round, updates));
    for (auto& update : updates)
      update.payload =
          lora::decode(lora::encode(update.payload, lora::TransportDtype::kBFloat16, {}).bytes, "the wire");
    double error = 0, size = 0;
    for (const auto& [site, delta] : effect(world.aggregate(*method, state, round, updates))) {
      error += (delta - exact.at(site)).square().sum().item<double>();
      size += exact.at(site).square().sum().item<double>();
    }
    EXPECT_GT(error, 0) << entry.name << ": nothing was rounded";
    EXPECT_LT(std::sqrt(error / size), std::exp2(-7)) << entry.name;
  }
}

TEST(FloristModes, PaperModeMergesAndCodeModeKeepsTraining) {
  TinyFederation world;
  for (auto& client : world.clients) client.rank = 1 + client.id;
  const auto paper = world.run(*make_method("florist"), 2),
             code = world.run(*make_method("florist", "mode = \"code\""), 2);
  EXPECT_TRUE(paper.global.adapters.empty());
  EXPECT_EQ(paper.common.base_change.size(), world.sites.size());
  EXPECT_TRUE(code.common.base_change.empty());
  EXPECT_EQ(code.global.adapters.size(), world.sites.size());
}

/// Returns the rescaler of client 0 (K_c = 1 of 3) in training, or of an evaluation with the same K.
at::Tensor rescaler(TinyFederation& world, const methods::FederatedMethod& method, const methods::ServerState& state,
                    bool trains) {
  auto client = world.clients[0];
  TensorMap nothing;
  client.trains = trains;
  auto view = world.view(client, 0);
  const auto download = method.broadcast(state, client, world.round(0));
  const methods::ClientView evaluator{
      .client = client, .sites = view.sites, .common = view.common, .scale = view.scale, .memory = nothing};
  return method.prepare(download, trains ? view : evaluator).router.output_scale;
}

TEST(A3SmoeRescaler, InitialValuesFollowTheMode) {
  TinyFederation world;
  for (const bool trains : {true, false}) {
    const auto begun = [&](const std::string& mode) {
      const auto method = make_method("a3smoe", "rescaler = \"" + mode + "\"");
      return rescaler(world, *method, method->initialize(world.server()), trains);
    };
    EXPECT_FALSE(begun("off").defined());
    EXPECT_EQ(begun("fixed").item<double>(), 3);
    EXPECT_EQ(begun("learn").item<double>(), 1);
  }
}

/// Returns what the method says about a model like the tiny one but with sigmoid scores and a norm behind its experts.
std::string refusal_of(const std::string& name, const std::string& toml) {
  const TinyFederation world;
  auto server = world.server();
  server.score = nn::ScoreFunction::kSigmoid;
  server.norm_behind_experts = true;
  return testing::refusal([&] { make_method(name, toml)->initialize(server); });
}

TEST(MethodOptions, ThatHaveNoMeaningForAModelAreRefused) {
  for (const std::string mode : {"learn", "fixed"})
    EXPECT_NE(refusal_of("a3smoe", "rescaler = \"" + mode + "\"").find("method.a3smoe.rescaler"), std::string::npos);
  EXPECT_NE(refusal_of("smoe-llb", "").find("sigmoid scores"), std::string::npos);
}

TEST(MethodOptions, ThatHaveAMeaningForThatModelAreTaken) {
  const TinyFederation world;
  auto server = world.server();
  server.score = nn::ScoreFunction::kSigmoid;
  server.norm_behind_experts = true;
  for (const auto* name : {"a3smoe", "ub-smoe", "fedit"})
    EXPECT_NO_THROW(make_method(name)->initialize(server)) << name;
}

TEST(A3SmoeRescaler, LearnedValuesStayWithClientsAndTheServerKeepsMeansByK) {
  TinyFederation world;
  const auto method = make_method("a3smoe", "rescaler = \"learn\"");
  const auto begun = method->initialize(world.server());
  const auto round = world.round(0, {0});
  const auto first = world.train(*method, begun, round, world.clients[0]);
  const double learned = world.memory.at("rescaler").item<double>();
  EXPECT_NE(learned, 1);
  EXPECT_NEAR(learned, 1, 1e-3 + world.training.optimizer.lr * static_cast<double>(first.steps));
  const std::vector<methods::ClientUpdate> updates{{world.clients[0], first.upload, first.steps}};
  const auto state = method->aggregate(world.server(), begun, round, updates);
  EXPECT_EQ(rescaler(world, *method, state, true).item<double>(), learned);
  EXPECT_EQ(rescaler(world, *method, state, false).item<double>(), learned);
  world.memory.clear();
  EXPECT_EQ(rescaler(world, *method, state, true).item<double>(), 1) << "a client began with another's rescaler";
}

TEST(FedSbInit, UsesTheSampleOfTheConfig) {
  const std::string other = "init = \"federated\"\nsamples = 24";
  for (const auto& [toml, from, rows] :
       {std::tuple{std::string(), methods::SampleFrom::kPooled, 170}, {other, methods::SampleFrom::kClients, 24}}) {
    OneSite world("fed-sb", toml);
    world.gradient_sum = [&](const std::string& site, const methods::GradientSample& sample) {
      EXPECT_EQ(site, kSite);
      EXPECT_EQ(sample.rows, rows);
      EXPECT_EQ(sample.from, from);
      return matrix({{1, 1}, {1, 1}});
    };
    world.method->initialize(world.server());
  }
}

}  // namespace
}  // namespace evenkeel
