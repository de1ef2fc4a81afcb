// Checks the two halves of Slimmable MoE: averaging by the use of experts, and a second pass with fewer experts per
// token that is trained towards the first.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/testing.h"
#include "tiny_federation.h"
#include "train/distillation.h"

namespace evenkeel {
namespace {

constexpr const char* kOff = "expert_mass = 'none'\ndistillation = 0.0";
constexpr const char* kMassOnly = "distillation = 0.0\nexpert_mass = ";
const std::string kFirstShare = "model.layers.0.mlp.share", kFirstDown = "model.layers.0.mlp.experts.down_proj";

std::unique_ptr<methods::FederatedMethod> slimmable(const std::string& toml) {
  return make_method("slimmable-moe", toml);
}
std::unique_ptr<methods::FederatedMethod> with_mass(const std::string& mass) {
  return slimmable(concat(kMassOnly, "'", mass, "'"));
}

TEST(SlimmableMoe, WithoutBothHalvesIsFedAvgToTheBit) {
  const TinyFederation world;
  const auto plain = world.run(*make_method("fedit"), 2);
  EXPECT_TRUE(equal(world.run(*slimmable(kOff), 2).global.adapters, plain.global.adapters));
  EXPECT_FALSE(equal(world.run(*slimmable(""), 2).global.adapters, plain.global.adapters));
}

TEST(SlimmableMoe, TheMassOfTokensIsA3SmoeUpToTheRoundingOfShares) {
  const TinyFederation world;
  const auto a3 = world.run(*make_method("a3smoe"), 1).global.adapters;
  EXPECT_LT(difference(world.run(*with_mass("tokens"), 1).global.adapters, a3), 1e-7);
  EXPECT_GT(difference(world.run(*with_mass("steps"), 1).global.adapters, a3), 1e-6);
  EXPECT_GT(difference(world.run(*with_mass("gates"), 1).global.adapters, a3), 1e-6);
}

/// Returns the share of the experts of the first layer that a client uploads after its round.
at::Tensor share_E(const TinyFederation& world, const methods::FederatedMethod& method, size_t client) {
  const auto state = method.initialize(world.server());
  const auto result = world.train(method, state, world.round(0), world.clients[client]);
  return result.upload.extras.at(kFirstShare);
}

TEST(SlimmableMoe, TheGateMassOfATokenIsOneAtEveryK) {
  const TinyFederation world;
  for (size_t client = 0; client < world.clients.size(); ++client)
    EXPECT_NEAR(share_E(world, *with_mass("gates"), client).sum().item<double>(), 1, 1e-5) << client;
  const auto gates = share_E(world, *with_mass("gates"), 0), tokens = share_E(world, *with_mass("tokens"), 0);
  EXPECT_TRUE(at::allclose(gates, tokens)) << "at K = 1 a gate is 1";
  EXPECT_NEAR(share_E(world, *with_mass("tokens"), 2).sum().item<double>(), 3, 1e-5) << "K = 3";
}

TEST(SlimmableMoe, TheMassOfStepsIsTheShareOfStepsThatUsedAnExpert) {
  TinyFederation world;
  world.training.batch_size = 1;
  world.training.accumulation = 1;
  world.training.local_epochs = 1;
  const auto method = with_mass("steps");
  const auto state = method->initialize(world.server());
  const auto result = world.train(*method, state, world.round(0), world.clients[0]);
  const auto share = result.upload.extras.at(kFirstShare).to(at::kDouble) * static_cast<double>(result.steps);
  EXPECT_TRUE(at::allclose(share, share.round(), 0, 1e-5)) << "a whole number of steps";
  EXPECT_TRUE(share.gt(0).equal(result.counts.at("model.layers.0.mlp").counts.gt(0)));
  EXPECT_LE(share.max().item<double>(), static_cast<double>(result.steps) + 1e-5);
}

TEST(SlimmableMoe, TheMassOfStepsIsZeroOrOneInAStepOfTwoMicroBatches) {
  TinyFederation world;
  world.training.batch_size = 1;
  world.training.accumulation = 2;
  for (auto& shard : world.shards) shard.resize(2);
  const auto method = with_mass("steps");
  const auto state = method->initialize(world.server());
  for (const auto& client : world.clients) {
    const auto result = world.train(*method, state, world.round(0), client);
    ASSERT_EQ(result.steps, 1);
    ASSERT_EQ(result.counts.size(), 2u);
    for (const auto& [layer, stats] : result.counts)
      EXPECT_TRUE(result.upload.extras.at(layer + ".share").equal(stats.counts.gt(0).to(at::kFloat)))
          << client.id << ' ' << layer;
  }
}

/// Returns the routing of a micro-batch of one token that chose the listed experts of the two layers.
nn::RoutingByLayer routed_to(const std::vector<int64_t>& first, const std::vector<int64_t>& second) {
  nn::RoutingByLayer routing;
  for (const auto& [layer, experts] : {std::pair{"model.layers.0.mlp", first}, {"model.layers.1.mlp", second}}) {
    const auto counts = at::zeros({6}, at::kLong).index_fill(0, at::tensor(experts, at::kLong), 1);
    routing[layer] = {.router_logits = {}, .counts = counts, .tokens = 1};
  }
  return routing;
}

// Three micro-batches in the first step and two in the second one.
TEST(SlimmableMoe, TheMassOfStepsAddsUpTheMicroBatchesOfAStepByLayer) {
  const TinyFederation world;
  const auto method = with_mass("steps");
  const auto download = method->broadcast(method->initialize(world.server()), world.clients[1], world.round(0));
  const auto view = world.view(world.clients[1], 0);
  auto setup = method->prepare(download, view);
  methods::Metrics metrics;
  const std::vector<std::vector<nn::RoutingByLayer>> steps{
      {routed_to({0, 1}, {5}), routed_to({1, 2}, {4, 5}), routed_to({1}, {4})},
      {routed_to({0}, {4}), routed_to({0}, {3})}};
  for (const auto& step : steps)
    method->edit_gradients(
        {.view = view, .download = download, .setup = setup, .micro_batches = step, .metrics = metrics});
  const auto shares = method->upload(download, setup, steps[0][0], view).extras;
  EXPECT_TRUE(shares.at(kFirstShare).equal(at::tensor({1.0, 0.5, 0.5, 0.0, 0.0, 0.0}, at::kFloat)));
  EXPECT_TRUE(shares.at("model.layers.1.mlp.share").equal(at::tensor({0.0, 0.0, 0.0, 0.5, 1.0, 0.5}, at::kFloat)));
}

TEST(SlimmableMoe, AnExpertThatNobodyUsedKeepsItsValueAndOthersAreTheMeanOfWhoUsedThem) {
  const TinyFederation world;
  const auto method = with_mass("steps");
  const auto state = method->initialize(world.server());
  auto updates = world.train_all(*method, state, world.round(0));
  for (size_t c = 0; c < updates.size(); ++c) {
    auto& share = updates[c].payload.extras.at(kFirstShare);
    share = at::zeros_like(share);
    if (c == 1 || c == 2) share[3] = c == 1 ? 0.25 : 0.75;
  }
  const auto round = world.round(0);
  const auto next = world.aggregate(*method, state, round, updates).global.adapters.at(kFirstDown).b;
  const auto before = state.global.adapters.at(kFirstDown).b;
  const double one = 0.25 * round.weights[1], other = 0.75 * round.weights[2];
  const auto expected =
      (one * updates[1].factors(kFirstDown).b[3] + other * updates[2].factors(kFirstDown).b[3]) / (one + other);
  EXPECT_TRUE(at::allclose(next[3], expected, 1e-5, 1e-8));
  EXPECT_GT(next[3].abs().max().item<double>(), 0);
  for (const int64_t unused : {0, 1, 2, 4, 5}) EXPECT_TRUE(next[unused].equal(before[unused])) << unused;
}

TEST(SlimmableMoe, SharesThatNoClientCanHaveAreRefused) {
  const TinyFederation world;
  for (const auto& [mass, share, says] : {std::tuple{"tokens", 1.5, "runs from 1.5 to 1.5"},
                                          {"steps", -0.5, "runs from -0.5"},
                                          {"tokens", 0.9, "sums to 5.4"},
                                          {"gates", 0.5, "sums to 3, allowed: up to 1"}}) {
    lora::Payload upload;
    upload.extras[kFirstShare] = at::full({6}, share);
    EXPECT_NE(testing::refusal([&] { with_mass(mass)->check_upload(upload, world.clients[2]); }).find(says),
              std::string::npos)
        << mass << ' ' << share;
  }
}

// --- the second pass ---

/// Returns a world of one step of plain gradient descent on one micro-batch, so that an upload is the start minus the
/// gradient.
TinyFederation world_of_one_step() {
  TinyFederation world;
  world.training.accumulation = 1;
  world.training.batch_size = 2;
  for (auto& shard : world.shards) shard.resize(2);
  world.training.optimizer = {.name = train::OptimizerName::kSgd, .lr = 1, .weight_decay = 0};
  return world;
}

/// Returns the factors B of the state's start, filled so that A has gradients too.
methods::ServerState filled(const TinyFederation& world, const methods::FederatedMethod& method) {
  auto state = method.initialize(world.server());
  at::manual_seed(5);
  for (auto& [site, factors] : state.global.adapters) factors.b.uniform_(-0.2, 0.2);
  return state;
}

/// Returns the gradient of mean_n tau^2 KL(p_n(K) || p_n(K')), by autograd over whole logits.
lora::AdapterState divergence_gradients(const TinyFederation& world, const methods::ServerState& state, int64_t top_k,
                                        int64_t student, double tau) {
  auto adapters = lora::clone(state.global.adapters);
  for (auto& [site, factors] : adapters) {
    factors.a.requires_grad_(true);
    factors.b.requires_grad_(true);
  }
  const auto batch = data::pack(world.shards[1]);
  const auto logits = [&](int64_t k) {
    models::ForwardOptions options{.adapters = &adapters};
    options.router = {.top_k = k, .gate_norm = world.gate_norm};
    return world.model->logits(world.model->target_hidden(batch, options), options);
  };
  const auto p = (logits(top_k).detach() / tau).softmax(-1), q = (logits(student) / tau).softmax(-1);
  (tau * tau * (p * (p.log() - q.log())).sum(-1).mean()).backward();
  lora::AdapterState gradients;
  for (const auto& [site, factors] : adapters) gradients[site] = {.a = factors.a.grad(), .b = factors.b.grad()};
  return gradients;
}

lora::AdapterState less(const lora::AdapterState& left, const lora::AdapterState& right) {
  lora::AdapterState result;
  for (const auto& [site, f] : left) result[site] = {.a = f.a - right.at(site).a, .b = f.b - right.at(site).b};
  return result;
}

TEST(KDropout, AddsTheGradientOfTheDivergenceFromTheClientsOwnAnswer) {
  const auto world = world_of_one_step();
  const auto plain = slimmable(kOff);
  const auto state = filled(world, *plain);
  const auto& client = world.clients[1];  // K = 2: the only smaller power of two is 1
  const auto without = world.train(*plain, state, world.round(0), client).upload.adapters;
  for (const auto& [weight, tau] : {std::pair{1.0, 1.0}, {0.5, 2.0}}) {
    const auto method = slimmable(concat("expert_mass = 'none'\ndistillation = ", weight, "\ntemperature = ", tau));
    const auto result = world.train(*method, state, world.round(0), client);
    ASSERT_EQ(result.steps, 1);
    auto expected = divergence_gradients(world, state, 2, 1, tau);
    double size = 0;
    for (auto& [site, gradient] : expected) {
      gradient.a *= weight, gradient.b *= weight;
      size = std::max(size, gradient.b.abs().max().item<double>());
    }
    EXPECT_GT(size, 1e-3);
    EXPECT_LT(difference(less(without, result.upload.adapters), expected), 1e-6) << weight << ' ' << tau;
  }
}

TEST(KDropout, ChangesNoCountNoRecordedLossAndNoClientOfOneExpert) {
  const TinyFederation world;
  const auto plain = slimmable(kOff), both = slimmable("expert_mass = 'none'");
  const auto state = filled(world, *plain);
  const auto of = [&](const auto& method, size_t client) {
    return world.train(*method, state, world.round(0), world.clients[client]);
  };
  EXPECT_TRUE(equal(of(plain, 0).upload.adapters, of(both, 0).upload.adapters)) << "K = 1";
  const auto without = of(plain, 2), with = of(both, 2);
  EXPECT_FALSE(equal(without.upload.adapters, with.upload.adapters)) << "K = 3";
  EXPECT_EQ(without.first_loss, with.first_loss);
  EXPECT_EQ(without.tokens, with.tokens);
  EXPECT_GT(with.metrics.at("distillation_kl"), 0);
  EXPECT_TRUE(equal(with.upload.adapters, of(both, 2).upload.adapters)) << "draws are seeded";
}

TEST(KDropout, DrawsEachPowerOfTwoBelowK) {
  const TinyFederation world;
  for (const auto& [top_k, allowed] : std::map<int64_t, std::set<int64_t>>{
           {1, {0}}, {2, {1}}, {3, {1, 2}}, {4, {1, 2}}, {5, {1, 2, 4}}, {8, {1, 2, 4}}}) {
    auto draws = train::SmallerTopK(top_k, world.view(world.clients[0], 0));
    std::set<int64_t> drawn;
    for (int i = 0; i < 60; ++i) drawn.insert(draws.draw());
    EXPECT_EQ(drawn, allowed) << top_k;
  }
}

}  // namespace
}  // namespace evenkeel
