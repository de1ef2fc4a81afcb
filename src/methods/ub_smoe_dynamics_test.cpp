// What UB-SMoE's pseudo-gradients do over rounds, with the method's own two halves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "methods/testing.h"

namespace evenkeel::methods::ubsmoe::dynamics {
namespace {

using namespace testing::ub_smoe;

// No client ever uses some experts, under plain SGD. Gt grows by sum_c p_c rho_c per round.
TEST(UbSmoeDynamics, UnusedExpertsDivergeByTheMeanRho) {
  for (const auto& [toml, factor] : {std::pair{"", 1.239674}, std::pair{"rho_ref = \"kmax\"\n", 1.810660}}) {
    const auto ub = method(std::string(toml) + "pg_apply = \"decoupled_sgd\"\npg_clip_mode = \"off\"");
    const auto round = round_of({1, 2, 4, 8});
    auto state = state_with(*ub, 0.5);
    for (int64_t t = 1; t <= 3; ++t) {
      std::vector<ClientUpdate> updates;
      for (const auto& client_profile : round.participants) {
        Client local(*ub, ub->broadcast(state, client_profile, round), client_profile);
        local.micro_batches = {routing({0, 0, 0, 0}, 5)};
        for (int64_t step = 0; step < 3; ++step) ub->edit_parameters(local.step());
        updates.push_back(
            {client_profile, ub->upload(local.download, local.setup, local.micro_batches[0], local.view), 3});
      }
      state = ub->aggregate(server(), state, round, updates);
      const double grown = state.global.extras.at(kUp + ".pseudo_grad_b").mean().item<double>();
      EXPECT_NEAR(grown / (0.5 * std::pow(factor, t)), 1.0, 1e-4) << toml << " round " << t;
    }
  }
}

// Over rounds an expert's pseudo-gradient is momentum: Gt' = sum_active p_c g_c + m Gt with m = sum_idle p_c rho_c
// (docs/methods.md). Two clients each have K = 1, 2, 4 and 8; expert e is used by all but the first 2 e.
const RoundView& unequal_round() {
  static const RoundView round = round_of({1, 1, 2, 2, 4, 4, 8, 8});
  return round;
}
bool uses(int64_t client, int64_t expert) { return client >= 2 * expert; }
double gradient_of(int64_t client) { return 1 + 0.1 * static_cast<double>(client); }

/// Returns the update of a client that moves the experts it uses by its gradient, and the others as the method says.
ClientUpdate moved(const FederatedMethod& ub, const ServerState& state, const ClientProfile& profile) {
  Client local(ub, ub.broadcast(state, profile, unequal_round()), profile);
  const int64_t used = 1 + profile.id / 2;
  std::vector<int64_t> counts(kExperts, 0);
  std::fill_n(counts.begin(), used, 5);
  local.micro_batches = {routing(counts, 5)};
  for (const auto& site : {kUp, kDown})
    for (const auto& part : {local.setup.adapters.at(site).a, local.setup.adapters.at(site).b})
      part.detach().slice(0, 0, used).sub_(0.01 * gradient_of(profile.id));
  ub.edit_parameters(local.step());
  return {profile, ub.upload(local.download, local.setup, local.micro_batches[0], local.view), 1};
}

/// Returns the means of the experts' pseudo-gradients after each of `rounds` rounds.
std::vector<std::vector<double>> pseudo_gradients_over(const std::string& toml, int64_t rounds) {
  const auto ub = method(toml + "pg_clip_mode = \"off\"");
  auto state = state_with(*ub, 0);
  std::vector<std::vector<double>> means;
  for (int64_t t = 0; t < rounds; ++t) {
    std::vector<ClientUpdate> updates;
    for (const auto& profile : unequal_round().participants) updates.push_back(moved(*ub, state, profile));
    state = ub->aggregate(server(), state, unequal_round(), updates);
    const auto& gt = state.global.extras.at(kUp + ".pseudo_grad_b");
    auto& own = means.emplace_back();
    for (int64_t e = 0; e < kExperts; ++e) own.push_back(gt[e].mean().item<double>());
  }
  return means;
}

/// \param rho  of K = 1, 2, 4 and 8
void expect_momentum(const std::vector<std::vector<double>>& gt, const std::vector<double>& rho) {
  for (int64_t e = 0; e < kExperts; ++e) {
    double active = 0, momentum = 0, own = 0;
    for (int64_t c = 0; c < 8; ++c)
      uses(c, e) ? active += gradient_of(c) / 8 : momentum += rho[static_cast<size_t>(c / 2)] / 8;
    for (const auto& round : gt) {
      own = active + momentum * own;
      EXPECT_NEAR(round[static_cast<size_t>(e)] / own, 1.0, 2e-3) << "expert " << e;
    }
  }
}

/// Returns an expert's last pseudo-gradient beside the mean gradient of the clients that use it.
double beside_active_clients(const std::vector<std::vector<double>>& gt, int64_t expert) {
  double sum = 0;
  for (int64_t c = 2 * expert; c < 8; ++c) sum += gradient_of(c);
  return gt.back()[static_cast<size_t>(expert)] * static_cast<double>(8 - 2 * expert) / sum;
}

TEST(UbSmoeDynamics, WithoutRhoTheLimitIsTheMeanOverActiveClients) {
  const auto gt = pseudo_gradients_over("rho_fn = \"none\"\n", 60);
  expect_momentum(gt, {1, 1, 1, 1});
  for (int64_t e = 0; e < kExperts; ++e) EXPECT_NEAR(beside_active_clients(gt, e), 1, 2e-3) << "expert " << e;
}

TEST(UbSmoeDynamics, RhoOvershootsAndHasNoLimitWhereFewClientsAreActive) {
  const auto gt = pseudo_gradients_over("", 60);
  expect_momentum(gt, {std::sqrt(3.75), std::sqrt(1.875), std::sqrt(0.9375), std::sqrt(0.46875)});
  EXPECT_NEAR(beside_active_clients(gt, 1), 1.453, 5e-3);
  EXPECT_NEAR(beside_active_clients(gt, 2), 2.878, 2e-2);
  EXPECT_GT(beside_active_clients(gt, 3), 50);
}

TEST(UbSmoeDynamics, ALinearRhoHasALimitForExpertsIdleAtTheLowestKAlone) {
  const auto gt = pseudo_gradients_over("rho_fn = \"linear\"\n", 60);
  expect_momentum(gt, {3.75, 1.875, 0.9375, 0.46875});  // m = 0.94, 1.41 and 1.64
  EXPECT_NEAR(beside_active_clients(gt, 1), 12 * (1 - std::pow(15.0 / 16, 60)), 2e-2);
  EXPECT_GT(beside_active_clients(gt, 2), 1e6);
  EXPECT_GT(beside_active_clients(gt, 3), 1e6);
}

// Experts that no client uses, beside others that move by 1 per step in every round. They move by 2 at most.
TEST(UbSmoeDynamics, RelativeClipBoundsUnusedExperts) {
  const auto ub = method();
  const auto round = round_of({1, 2, 4, 8});
  auto state = state_with(*ub, 1.0);
  for (int64_t t = 1; t <= 12; ++t) {
    std::vector<ClientUpdate> updates;
    for (const auto& client_profile : round.participants) {
      Client local(*ub, ub->broadcast(state, client_profile, round), client_profile);
      local.micro_batches = {routing({5, 5, 5, 0}, 5)};
      for (int64_t step = 0; step < 3; ++step) {
        for (auto& [site, factors] : local.setup.adapters)
          factors.a.detach().slice(0, 0, 3).sub_(0.01), factors.b.detach().slice(0, 0, 3).sub_(0.01);
        ub->edit_parameters(local.step());
      }
      updates.push_back(
          {client_profile, ub->upload(local.download, local.setup, local.micro_batches[0], local.view), 3});
    }
    state = ub->aggregate(server(), state, round, updates);
    const auto& gt = state.global.extras.at(kUp + ".pseudo_grad_b");
    EXPECT_NEAR(gt[0].mean().item<double>(), 1.0, 1e-3);
    EXPECT_LE(gt[3].mean().item<double>(), 2.0 + 1e-3) << "round " << t;
    if (t == 12) {
      EXPECT_GT(gt[3].mean().item<double>(), 1.5);
    }
  }
}

}  // namespace
}  // namespace evenkeel::methods::ubsmoe::dynamics
