// Checks equalities between whole rounds: FedIT and plain training, UB-SMoE and FedIT, and UB-SMoE's own sums.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random/random.h"
#include "tiny_federation.h"
#include "train/weight_gradient.h"

namespace evenkeel {
namespace {

/// Implements local training without methods, servers or payloads. The optimiser is new in every round.
lora::AdapterState train_centrally(const TinyFederation& world, lora::AdapterState adapters, int64_t rounds,
                                   int64_t top_k) {
  const auto& shard = world.shards[2];
  for (int64_t t = 0; t < rounds; ++t) {
    std::vector<at::Tensor> leaves;
    for (auto& [site, factors] : adapters)
      for (auto* tensor : {&factors.a, &factors.b}) leaves.push_back(tensor->requires_grad_(true));
    train::AdamW adamw(leaves, world.training.optimizer);
    RandomStream stream(world.seed, "batches", static_cast<uint64_t>(t), 2);
    auto order = stream.permutation(static_cast<int64_t>(shard.size()));
    size_t next = 0;
    for (int64_t step = 0; step < train::local_steps(world.training, static_cast<int64_t>(shard.size())); ++step) {
      for (auto& leaf : leaves) leaf.mutable_grad() = at::zeros_like(leaf);
      for (int64_t micro = 0; micro < world.training.accumulation; ++micro) {
        std::vector<data::Example> rows;
        for (int64_t i = 0; i < world.training.batch_size; ++i) {
          if (next == order.size()) order = stream.permutation(static_cast<int64_t>(shard.size())), next = 0;
          rows.push_back(shard[static_cast<size_t>(order[next++])]);
        }
        models::ForwardOptions options;
        options.adapters = &adapters;
        options.router.top_k = top_k;
        const auto loss = world.model->loss(data::pack_shared(rows), options);
        (loss.sum / static_cast<double>(loss.count) / static_cast<double>(world.training.accumulation)).backward();
      }
      adamw.step();
    }
    adapters = lora::clone(adapters);
  }
  return adapters;
}

TEST(FedIt, WithOneClientEqualsCentralTraining) {
  TinyFederation world;
  world.gate_norm = nn::RouterOptions().gate_norm;
  world.training.local_epochs = 2;
  world.training.merge_tokens = 0;
  const auto method = make_method("fedit");
  auto state = method->initialize(world.server());
  const auto central = train_centrally(world, lora::clone(state.global.adapters), 3, world.clients[2].top_k);
  for (int64_t t = 0; t < 3; ++t) {
    const auto round = world.round(t, {2});
    state = method->aggregate(world.server(), state, round, world.train_all(*method, state, round));
  }
  EXPECT_TRUE(equal(state.global.adapters, central));
}

TEST(UbSmoe, WithoutItsTwoMechanismsEqualsFedIt) {
  TinyFederation world;
  for (auto& client : world.clients) client.top_k = 2;
  const auto fedit = world.run(*make_method("fedit"), 3);
  const auto off = world.run(*make_method("ub-smoe", "pg = false\nnum_candidates = 0"), 3);
  const auto phi_at_zero =
      world.run(*make_method("ub-smoe", "pg = false\nphi_update = \"off\"\nphi_train = \"off\""), 3);
  EXPECT_TRUE(equal(off.global.adapters, fedit.global.adapters));
  EXPECT_TRUE(equal(phi_at_zero.global.adapters, fedit.global.adapters));
  const auto whole = world.run(*make_method("ub-smoe"), 3);
  EXPECT_FALSE(equal(whole.global.adapters, fedit.global.adapters)) << "the mechanisms have no effect at all";
}

/// Runs three rounds of clients that all use `top_k` of the 6 experts. Returns the adapters, and in `pg_share` the
/// share of experts that got a pseudo-gradient in the last round.
lora::AdapterState rounds_at(int64_t top_k, const std::string& toml, double* pg_share = nullptr) {
  TinyFederation world;
  world.training.batch_size = 1;
  for (auto& client : world.clients) client.top_k = top_k;
  const auto method = make_method("ub-smoe", toml);
  auto state = method->initialize(world.server());
  for (int64_t t = 0; t < 3; ++t) {
    const auto round = world.round(t);
    if (pg_share) *pg_share = world.train(*method, state, round, world.clients[0]).metrics.at("pg_share");
    state = method->aggregate(world.server(), state, round, world.train_all(*method, state, round));
  }
  return state.global.adapters;
}

TEST(UbSmoe, InjectsNothingIfEveryExpertIsUsed) {
  double pg_share = -1;
  const auto all = rounds_at(6, "", &pg_share);
  EXPECT_EQ(pg_share, 0);
  EXPECT_TRUE(equal(all, rounds_at(6, "pg = false")));
  EXPECT_TRUE(equal(all, rounds_at(6, "pg_apply = \"adam_grad\"")));
  const auto some = rounds_at(1, "", &pg_share);
  EXPECT_GT(pg_share, 0);
  EXPECT_FALSE(equal(some, rounds_at(1, "pg = false"))) << "nothing is injected at all";
}

TEST(UbSmoe, UtilizationSumsToTheMeanKOfTheParticipants) {
  TinyFederation world;
  const auto method = make_method("ub-smoe");
  auto state = method->initialize(world.server());
  for (const auto& ids : {std::vector<int64_t>{0, 1, 2, 3}, {0, 3}, {1}}) {
    const auto round = world.round(state.round, ids);
    state = method->aggregate(world.server(), state, round, world.train_all(*method, state, round));
    double kbar = 0;
    for (size_t c = 0; c < ids.size(); ++c) kbar += round.weights[c] * static_cast<double>(round.participants[c].top_k);
    const auto seen = method->diagnostics(state);
    for (const auto& layer : world.server().moe_layers) {
      EXPECT_NEAR(seen.at(layer + ".utilization").sum().item<double>(), kbar, 1e-9) << layer;
      EXPECT_LE(seen.at(layer + ".phi").abs().max().item<double>(), 1.0) << layer;
    }
  }
}

TEST(UbSmoe, PermutedClientsGiveTheSameRoundUpToRounding) {
  TinyFederation world;
  const auto method = make_method("ub-smoe");
  auto forth = method->initialize(world.server()), back = forth;
  for (int64_t t = 0; t < 2; ++t) {
    const auto a = world.round(t), b = world.round(t, {2, 0, 3, 1});
    forth = method->aggregate(world.server(), forth, a, world.train_all(*method, forth, a));
    back = method->aggregate(world.server(), back, b, world.train_all(*method, back, b));
  }
  EXPECT_LT(difference(forth.global.adapters, back.global.adapters), 1e-4);
}

TEST(UbSmoe, InjectsIntoIdleExpertsFromTheSecondRoundOn) {
  TinyFederation world;
  world.training.batch_size = 1;
  const auto method = make_method("ub-smoe", "pg_clip_mode = \"per_expert_norm\"");
  const auto first = world.train(*method, method->initialize(world.server()), world.round(0), world.clients[0]);
  const auto later = world.train(*method, world.run(*method, 1), world.round(1), world.clients[0]);
  EXPECT_GT(first.metrics.at("idle_share"), 0);
  EXPECT_EQ(first.metrics.at("pg_share"), 0);
  EXPECT_GT(later.metrics.at("pg_share"), 0);
  EXPECT_GT(later.metrics.at("pg_norm"), 0);
  EXPECT_LE(later.metrics.at("pg_norm"), 2.0 + 1e-5);
  EXPECT_GT(later.metrics.at("pg_clipped"), 0);
  EXPECT_LE(later.metrics.at("pg_clipped"), 1);
}

/// Returns the gradients of the task loss of one client's rows with its own router options.
lora::AdapterState gradients(const TinyFederation& world, const std::string& toml, int64_t top_k,
                             TensorMap* phi_grads) {
  auto client = world.clients[0];
  client.top_k = top_k;
  const auto method = make_method("ub-smoe", toml);
  const auto download = method->broadcast(world.run(*method, 1), client, world.round(0));
  auto setup = method->prepare(download, world.view(client, 0));
  for (auto& [site, factors] : setup.adapters) factors.a.requires_grad_(true), factors.b.requires_grad_(true);
  for (auto& [name, phi] : setup.extra_trainables) phi.requires_grad_(true);
  models::ForwardOptions options;
  options.adapters = &setup.adapters;
  options.router = setup.router;
  world.model->loss(data::pack(world.shards[0]), options).sum.backward();
  for (auto& [name, phi] : setup.extra_trainables) (*phi_grads)[name] = phi.grad();
  lora::AdapterState result;
  for (auto& [site, factors] : setup.adapters) result[site] = {factors.a.grad(), factors.b.grad(), {}, 1.0};
  return result;
}

double largest(const at::Tensor& tensor) { return tensor.defined() ? tensor.abs().max().item<double>() : 0.0; }

TEST(UbSmoe, ASingleRenormalisedExpertGivesRouterAndPhiZeroGradient) {
  const TinyFederation world;
  for (const int64_t top_k : {1, 2}) {
    TensorMap phi;
    const auto grads = gradients(world, "phi_train = \"local_discard\"", top_k, &phi);
    double router = 0, modulation = 0;
    for (const auto& [site, g] : grads)
      if (site.ends_with(".mlp.gate")) router = std::max({router, largest(g.a), largest(g.b)});
    for (const auto& [name, g] : phi) modulation = std::max(modulation, largest(g));
    if (top_k == 1) {
      EXPECT_EQ(router, 0);
      EXPECT_EQ(modulation, 0);
    } else {
      EXPECT_GT(router, 0);
      EXPECT_GT(modulation, 0);
    }
  }
}

/// Runs one round of all clients and returns the change of every weight.
std::map<std::string, at::Tensor> effect_of_a_round(const TinyFederation& world, std::string_view name,
                                                    const std::string& toml = "") {
  return effect(world.run(*make_method(name, toml), 1));
}

double difference(const std::map<std::string, at::Tensor>& left, const std::map<std::string, at::Tensor>& right) {
  EXPECT_EQ(left.size(), right.size());
  double largest = 0;
  for (const auto& [site, delta] : left)
    largest = std::max(largest, (delta - right.at(site)).abs().max().item<double>());
  return largest;
}

TEST(SparsityMethods, WithoutTheirMechanismsEqualFedAvgOfASparseModel) {
  TinyFederation world;
  const auto plain = world.run(*make_method("fedit"), 2);
  const auto a3 = world.run(*make_method("a3smoe", "temperature = 0.0"), 2);
  const auto llb = world.run(*make_method("smoe-llb", "llb_coef = 0.0\nz_coef = 0.0"), 2);
  EXPECT_TRUE(equal(a3.global.adapters, plain.global.adapters));
  EXPECT_TRUE(equal(llb.global.adapters, plain.global.adapters));
  EXPECT_FALSE(equal(world.run(*make_method("a3smoe"), 2).global.adapters, plain.global.adapters));
  EXPECT_FALSE(equal(world.run(*make_method("smoe-llb"), 2).global.adapters, plain.global.adapters));
}

TEST(RankMethods, FloraFloristAndFlexLoraHaveTheSameFirstRound) {
  TinyFederation world;
  // All clients have rank 1, the global rank has space for all four, and A is common.
  for (auto& client : world.clients) client.rank = 1;
  world.rank = 4;
  const auto flora = effect_of_a_round(world, "flora", "fresh_init = \"shared\"");
  const auto flex = effect_of_a_round(world, "flexlora");
  EXPECT_LT(difference(flora, flex), 1e-6);
  const auto own = effect_of_a_round(world, "flora");
  EXPECT_LT(difference(own, effect_of_a_round(world, "florist", "tau = 1.0")), 1e-6);
  EXPECT_GT(difference(own, effect_of_a_round(world, "florist", "tau = 0.5")), 1e-6);
  EXPECT_GT(difference(own, flora), 1e-6) << "own and shared draws are the same";
}

TEST(RankMethods, FedExAndFloraHaveTheSameFirstRoundFromTheSameStart) {
  TinyFederation world;
  EXPECT_LT(
      difference(effect_of_a_round(world, "fedex-lora"), effect_of_a_round(world, "flora", "fresh_init = \"shared\"")),
      1e-6);
}

TEST(RankMethods, HetLoraWithEqualRanksAndNormsEqualsFedIt) {
  TinyFederation world;
  auto round = world.round(0, {1, 2, 3});
  for (auto& weight : round.weights) weight = 1.0 / 3;
  const auto het = make_method("hetlora", "lambda = 0.0\nprune = false"), fedit = make_method("fedit");
  const auto het_state = het->initialize(world.server()), fedit_state = fedit->initialize(world.server());
  // The same upload with other signs has equal norms and unequal factors.
  auto one = world.train(*het, het_state, round, round.participants[0]);
  std::vector<methods::ClientUpdate> updates;
  for (const double sign : {1.0, -1.0, 1.0}) {
    auto payload = one.upload;
    for (auto& [site, factors] : payload.adapters) factors.b = factors.b * sign;
    updates.push_back({.client = round.participants[updates.size()], .payload = payload, .steps = one.steps});
  }
  EXPECT_LT(difference(effect(het->aggregate(world.server(), het_state, round, updates)),
                       effect(fedit->aggregate(world.server(), fedit_state, round, updates))),
            1e-7);
}

TEST(BaseChangingMethods, ManyRoundsEqualTheFloat64SumOfTheirChanges) {
  TinyFederation world;
  for (const auto* name : {"flora", "florist", "fedex-lora"}) {
    const auto method = make_method(name);
    auto state = method->initialize(world.server());
    std::map<std::string, at::Tensor> sum;
    for (int64_t t = 0; t < 12; ++t) {
      const auto round = world.round(t);
      state = world.aggregate(*method, state, round, world.train_all(*method, state, round));
      for (const auto& [site, delta] : state.global.base_delta) {
        const auto exact = at::matmul(delta.b.to(at::kDouble), delta.a.to(at::kDouble)) * delta.scaling;
        sum[site] = sum.contains(site) ? sum[site] + exact : exact;
      }
    }
    for (const auto& [site, change] : state.common.base_change) {
      const auto held = at::matmul(change.b.to(at::kDouble), change.a.to(at::kDouble));
      EXPECT_LT((held - sum.at(site)).abs().max().item<double>(), 1e-6 * sum.at(site).abs().max().item<double>())
          << name << " " << site;
      EXPECT_LE(change.rank(), std::min(change.a.size(-1), change.b.size(-2))) << name << " " << site;
    }
  }
}

/// The model's output must include a change of the base, in training and in evaluation.
TEST(BaseChangingMethods, TheForwardPassUsesTheChange) {
  TinyFederation world;
  const auto state = world.run(*make_method("flora"), 2);
  const auto batch = data::pack(world.shards[0]);
  const auto bare = world.model->hidden(batch, {});
  const auto changed = world.model->hidden(batch, {.base_change = &state.common.base_change});
  const auto as_adapter = world.model->hidden(batch, {.adapters = &state.common.base_change});
  EXPECT_GT((changed - bare).abs().max().item<double>(), 1e-4);
  EXPECT_LT((changed - as_adapter).abs().max().item<double>(), 1e-5);
}

TEST(FfaLora, AIsBitIdenticalAfterManyRoundsAndDiffersBetweenModules) {
  TinyFederation world;
  const auto method = make_method("ffa-lora");
  const auto begun = method->initialize(world.server());
  const auto state = world.run(*method, 3);
  EXPECT_TRUE(equal(begun.common.fixed, state.common.fixed));
  const auto& a = state.common.fixed.at("model.layers.0.mlp.experts.up_proj").a;
  EXPECT_FALSE(a[0].equal(a[1]));
  EXPECT_FALSE(a.equal(state.common.fixed.at("model.layers.1.mlp.experts.up_proj").a));
}

TEST(FedSb, InitialisesFromTheBestApproximationOfAFirstStep) {
  TinyFederation world;
  const auto server = world.server();
  const auto state = make_method("fed-sb")->initialize(server);
  for (const auto& [site, fixed] : state.common.fixed) {
    const auto gradient = server.gradient_sum(site, {.rows = 170}).to(at::kDouble);
    const auto d = gradient.sign() * -server.lr;
    const auto start =
        lora::delta_weight(lora::completed(state.global.adapters, state.common.fixed).at(site)).to(at::kDouble);
    const auto s = std::get<1>(at::linalg_svd(d, false));
    const int64_t rank = state.global.adapters.at(site).core.size(-1);
    const auto tail = s.narrow(-1, rank, s.size(-1) - rank).square().sum().sqrt().item<double>();
    EXPECT_NEAR((d - start).square().sum().sqrt().item<double>(), tail, 1e-6) << site;
    const auto gram = at::matmul(fixed.b.transpose(-1, -2), fixed.b);
    EXPECT_LT((gram - at::eye(rank)).abs().max().item<double>(), 1e-5) << site;
  }
}

}  // namespace
}  // namespace evenkeel
