// Tests for mistakes that only whole rounds show, continued from published_mistakes_test.cpp: the gradients and updates
// of idle experts, and what each client trains.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "one_site.h"
#include "tiny_federation.h"
#include "train/weight_gradient.h"

namespace evenkeel {
namespace {

const std::string kUp = ".experts.up_proj";

/// A federation whose client 0 uses one expert per token on four tokens, with weight decay. Two or more of the six
/// experts are idle.
struct IdleWorld : TinyFederation {
  IdleWorld() {
    shards[0].resize(1);
    shards[0][0].ids.resize(4);
    shards[0][0].first_target = 1;
    training.local_epochs = 10;
    training.optimizer.weight_decay = 0.5;
  }
  train::LocalResult train_first(const methods::FederatedMethod& method, const methods::ServerState& state) const {
    return train(method, state, round(0, {0}), clients[0]);
  }
  /// Returns the indices of the experts of a layer that no token selected.
  static at::Tensor idle(const train::LocalResult& result, const std::string& layer) {
    const auto idle = result.counts.at(layer).counts.eq(0).nonzero().squeeze(1);
    EXPECT_GT(idle.numel(), 0) << "no expert was idle: the test shows nothing";
    return idle;
  }
  const std::string layer = "model.layers.1.mlp";
};

// --- idle experts ---

// A zero gradient is not a missing one: decoupled decay applies, also in UB-SMoE's first round, where Gt is zero.
TEST(IdleExpertMistakes, AZeroGradientIsTreatedAsMissing) {
  IdleWorld world;
  for (const std::string name : {"fedit", "ub-smoe"}) {
    const auto method = make_method(name);
    const auto state = method->initialize(world.server());
    const auto before = state.global.adapters.at(world.layer + kUp).a;
    const auto result = world.train_first(*method, state);
    const auto idle = world.idle(result, world.layer);
    const auto after = result.upload.adapters.at(world.layer + kUp).a.index_select(0, idle);
    const auto begun = before.index_select(0, idle);
    const double decay = 1 - world.training.optimizer.lr * world.training.optimizer.weight_decay;
    expect_not_mistaken(after, begun * std::pow(decay, result.steps), begun, 5e-7);
  }
}

TEST(IdleExpertMistakes, SkippedExpertsDecay) {
  IdleWorld world;
  world.training.idle_expert_update = train::IdleExpertUpdate::kSkip;
  const auto method = make_method("fedit");
  const auto state = method->initialize(world.server());
  const auto result = world.train_first(*method, state);
  const auto idle = world.idle(result, world.layer);
  const auto &before = state.global.adapters.at(world.layer + kUp),
             &after = result.upload.adapters.at(world.layer + kUp);
  EXPECT_TRUE(after.a.index_select(0, idle).equal(before.a.index_select(0, idle)));
  EXPECT_FALSE(after.a.equal(before.a));
}

// B of a fresh adapter stays exactly zero for an expert without tokens, with any weight decay.
TEST(IdleExpertMistakes, AnIdleExpertChangesTheBase) {
  const IdleWorld world;
  for (const std::string name : {"flora", "florist"}) {
    const auto method = make_method(name);
    const auto state = method->initialize(world.server());
    const auto result = world.train_first(*method, state);
    const std::vector<methods::ClientUpdate> updates{{world.clients[0], result.upload, result.steps}};
    const auto next = world.aggregate(*method, state, world.round(0, {0}), updates);
    const auto idle = world.idle(result, world.layer);
    EXPECT_EQ(effect(next).at(world.layer + kUp).index_select(0, idle).abs().max().item<double>(), 0) << name;
    EXPECT_GT(effect(next).at(world.layer + kUp).abs().max().item<double>(), 0) << name;
    if (name == "florist") {
      const auto& ranks = next.global.base_delta.at(world.layer + kUp).ranks;
      EXPECT_EQ(ranks.index_select(0, idle).max().item<int64_t>(), 0);
    }
  }
}

/// The first round of all clients, and the aggregate.
struct FirstRound {
  explicit FirstRound(std::string_view name) : method(make_method(name)) {}

  const TinyFederation world;
  const std::unique_ptr<methods::FederatedMethod> method;
  const methods::ServerState state = method->initialize(world.server());
  const methods::RoundView round = world.round(0);
  const std::vector<methods::ClientUpdate> updates = world.train_all(*method, state, round);
  const methods::ServerState next = method->aggregate(world.server(), state, round, updates);
};

// --- UB-SMoE ---

TEST(UbSmoeMistakes, ThePseudoGradientIsTheMoveOfOneClient) {
  const FirstRound first("ub-smoe");
  const auto& [world, method, state, round, updates, next] = first;
  const auto site = "model.layers.0.mlp" + kUp;
  const auto before = state.global.adapters.at(site).b.to(at::kDouble);
  double gamma = 0;
  auto mean = at::zeros_like(before);
  for (size_t c = 0; c < updates.size(); ++c) {
    gamma += round.weights[c] * static_cast<double>(updates[c].steps);
    mean += round.weights[c] * updates[c].payload.adapters.at(site).b;
  }
  const double per_step = world.training.optimizer.lr * gamma;
  expect_not_mistaken(next.global.extras.at(site + ".pseudo_grad_b"), (before - mean) / per_step,
                      (before - updates[0].payload.adapters.at(site).b) / per_step, 1e-5);
}

// Only the client with the smallest K takes part: u* is its K divided by the number of experts, and rho is 1.
TEST(UbSmoeMistakes, TheMeanKIsOfAllClientsWhileOneTakesPart) {
  const TinyFederation world;
  const auto method = make_method("ub-smoe", "phi_momentum = 0.0");
  const auto state = method->initialize(world.server());
  const auto round = world.round(0, {0}), everybody = world.round(0);
  const auto seen =
      method->diagnostics(method->aggregate(world.server(), state, round, world.train_all(*method, state, round)));
  const auto u_E = seen.at("model.layers.0.mlp.utilization");
  const auto phi_E = [&](double kbar) { return (kbar / static_cast<double>(u_E.numel()) / (u_E + 1e-8) - 1).tanh(); };
  double kbar = 0;
  for (size_t c = 0; c < 4; ++c) kbar += everybody.weights[c] * static_cast<double>(everybody.participants[c].top_k);
  EXPECT_GT(kbar, 2);
  expect_not_mistaken(seen.at("model.layers.0.mlp.phi"), phi_E(1), phi_E(kbar));
  EXPECT_EQ(method->broadcast(state, world.clients[0], round).extras.at("rho.reference").item<double>(), 1);
}

// --- A3SMoE ---

/// Returns sum_c w_ci B_c of one site with w_ci = p_c f_ci / sum_c p_c f_ci and the counts of `layer`.
at::Tensor mean_by_activation(const std::string& site, const std::string& layer, const methods::RoundView& round,
                              std::span<const methods::ClientUpdate> updates) {
  at::Tensor sum, total;
  for (size_t c = 0; c < updates.size(); ++c) {
    const auto tokens = updates[c].extra(layer + ".tokens").item<double>();
    const auto raw =
        (updates[c].extra(layer + ".counts").to(at::kDouble) * (round.weights[c] / tokens)).view({-1, 1, 1});
    const auto part = raw * updates[c].factors(site).b;
    sum = sum.defined() ? sum + part : part;
    total = total.defined() ? total + raw : raw;
  }
  return sum / total;
}

TEST(A3SmoeMistakes, ActivationsOfOneLayerWeighAnother) {
  const FirstRound first("a3smoe");
  const auto& [world, method, state, round, updates, next] = first;
  const std::string own = "model.layers.1.mlp", other = "model.layers.0.mlp";
  expect_not_mistaken(next.global.adapters.at(own + kUp).b, mean_by_activation(own + kUp, own, round, updates),
                      mean_by_activation(own + kUp, other, round, updates), 1e-7);
}

// --- SMoE-LLB ---

/// Returns the mean over layers of E sum_i f_i P_i for client 0's rows, with f from the `top_k` best experts per token.
double load_balance(const TinyFederation& world, const methods::FederatedMethod& method, int64_t top_k) {
  const auto download = method.broadcast(method.initialize(world.server()), world.clients[0], world.round(0));
  auto setup = method.prepare(download, world.view(world.clients[0], 0));
  for (auto& [site, factors] : setup.adapters) factors.a.requires_grad_(true);
  nn::RoutingByLayer routing;
  world.model->loss(data::pack(world.shards[0]),
                    {.adapters = &setup.adapters, .router = setup.router, .routing = {&routing, 1}});
  double sum = 0;
  for (const auto& [layer, stats] : routing) {
    const auto& logits_TE = stats.router_logits;
    const auto chosen = std::get<1>(logits_TE.topk(top_k)).flatten();
    const auto f_E = at::bincount(chosen, {}, logits_TE.size(1)) / static_cast<double>(chosen.numel());
    sum += static_cast<double>(logits_TE.size(1)) * (f_E * logits_TE.softmax(-1).mean(0)).sum().item<double>();
  }
  return sum / static_cast<double>(routing.size());
}

TEST(SmoeLlbMistakes, TheBalanceUsesTheKOfTheCheckpoint) {
  TinyFederation world;
  world.shards[0].resize(2);
  world.training.accumulation = 1;
  const auto method = make_method("smoe-llb");
  const auto result = world.train(*method, method->initialize(world.server()), world.round(0), world.clients[0]);
  ASSERT_EQ(result.steps, 1);
  const double ours = result.metrics.at("load_balance_loss"), right = load_balance(world, *method, 1);
  EXPECT_NEAR(ours, right, 1e-5);
  EXPECT_GT(std::abs(load_balance(world, *method, 3) - right), 1e-2);
}

TEST(SmoeLlbMistakes, TheReportedLossIncludesTheAuxiliaryOnes) {
  const TinyFederation world;
  const auto first_loss = [&](const std::string& toml) {
    const auto method = make_method("smoe-llb", toml);
    return world.train(*method, method->initialize(world.server()), world.round(0), world.clients[0]).first_loss;
  };
  EXPECT_EQ(first_loss("llb_coef = 100.0"), first_loss("llb_coef = 0.0\nz_coef = 0.0"));
}

// --- ranks and frozen factors ---

TEST(RankMistakes, EveryClientTrainsAtTheLargestRank) {
  TinyFederation world;
  world.gate_norm = nn::GateNorm::
      kCheckpoint;  // with renormalised gates, the only gate of a client with one expert would always be 1
  for (auto& client : world.clients) client.rank = 1 + client.id;
  for (const std::string name : {"hetlora", "flexlora", "flora", "florist"}) {
    const auto method = make_method(name);
    for (const auto& update : world.train_all(*method, method->initialize(world.server()), world.round(0)))
      for (const auto& [site, factors] : update.payload.adapters) {
        EXPECT_EQ(factors.rank(), update.client.rank) << name << " " << site;
        EXPECT_GT(factors.b.select(-1, update.client.rank - 1).abs().max().item<double>(), 0) << name << " " << site;
      }
  }
}

TEST(FfaLoraMistakes, AIsTrainedDecayedOrDrawnAgain) {
  TinyFederation world;
  world.training.optimizer.weight_decay = 0.1;
  const auto method = make_method("ffa-lora");
  const auto drawn = lora::clone(method->initialize(world.server()).common.fixed);
  const auto state = world.run(*method, 2);
  const auto download = method->broadcast(state, world.clients[1], world.round(2));
  const auto setup = method->prepare(download, world.view(world.clients[1], 2, state.common));
  for (const auto& [site, factors] : setup.adapters) EXPECT_TRUE(factors.a.equal(drawn.at(site).a)) << site;
}

// The start uses signs, and half precision does not determine the signs of small entries.
TEST(FedSbMistakes, TheSampleIsSummedInHalfPrecision) {
  const TinyFederation world;
  const std::string site = "model.layers.0.self_attn.q_proj";
  std::vector<const data::Example*> rows;
  for (const auto& shard : world.shards)
    for (const auto& row : shard) rows.push_back(&row);
  const lora::Sites sites{{site, world.sites.at(site)}};
  const auto whole = train::weight_gradients(*world.model, sites, {rows, 1}).at(site);
  auto exact = at::zeros_like(whole, at::kDouble), half = at::zeros_like(whole, at::kBFloat16);
  for (const auto* row : rows) {
    const auto part = train::weight_gradients(*world.model, sites, {std::span(&row, 1), 1}).at(site);
    exact += part, half += part.to(at::kBFloat16);
  }
  EXPECT_EQ(whole.scalar_type(), at::kFloat);
  EXPECT_LT((whole - exact).abs().max().item<double>(), 1e-6 * exact.abs().max().item<double>());
  EXPECT_GT((half - exact).abs().max().item<double>(), 1e-3 * exact.abs().max().item<double>());
}

}  // namespace
}  // namespace evenkeel
