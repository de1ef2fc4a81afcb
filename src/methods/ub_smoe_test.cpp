// Compares UB-SMoE with hand-computed values: the server's two updates, and every mode of the pseudo-gradients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "methods/testing.h"

namespace evenkeel::methods::ubsmoe::steps {
namespace {

using namespace testing::ub_smoe;

/// Returns the means of all metrics, also of those that are still on the device.
std::map<std::string, double> means_of(Metrics& metrics) {
  metrics.read();
  return metrics.means();
}

/// Returns a method that adds pseudo-gradients to the gradients before AdamW, clipped per expert unless `toml` sets a
/// mode.
std::unique_ptr<FederatedMethod> through_adamw(const std::string& toml = "") {
  const bool says_how = toml.find("pg_clip_mode") != std::string::npos;
  return method(concat("pg_apply = \"adam_grad\"\n", says_how ? "" : "pg_clip_mode = \"per_expert_norm\"\n", toml));
}

/// Returns the norm of one expert's pseudo-gradient if all its values are 1.
double unit_norm() { return std::sqrt(2.0 * kRank * (3 + 5)); }

ClientUpdate update_of(const FederatedMethod& method, const ServerState& state, const ClientProfile& client_profile,
                       const RoundView& round, const nn::RoutingByLayer& counts, int64_t steps = 1) {
  Client local(method, method.broadcast(state, client_profile, round), client_profile);
  return {.client = client_profile,
          .payload = method.upload(local.download, local.setup, counts, local.view),
          .steps = steps};
}

// M = 4, p = (.5, .5), K = (1, 2), counts (6, 2, 1, 1) and (8, 6, 4, 2) of 10 tokens each.
TEST(UbSmoeServer, MovesPhiByUtilization) {
  const auto ub = method();
  const auto round = round_of({1, 2});
  const auto state = ub->initialize(server());
  const std::vector<ClientUpdate> updates{
      update_of(*ub, state, round.participants[0], round, routing({6, 2, 1, 1}, 10)),
      update_of(*ub, state, round.participants[1], round, routing({8, 6, 4, 2}, 10))};
  const auto seen = ub->diagnostics(ub->aggregate(server(), state, round, updates));
  const auto u = seen.at(kLayer + ".utilization"), phi = seen.at(kLayer + ".phi").to(at::kDouble);
  EXPECT_TRUE(u.allclose(at::tensor({.7, .4, .25, .15}, at::kDouble), 0, 1e-12)) << u;
  EXPECT_NEAR(u.sum().item<double>(), 1.5, 1e-12);
  const auto expected = at::tensor({-.04335707, -.00624188, .04621171, .09051482}, at::kDouble);
  EXPECT_TRUE(phi.allclose(expected, 0, 1e-8)) << phi;
}

TEST(UbSmoeServer, BringsPhiIntoItsRangeOnEachSideOfZero) {
  const std::map<std::string, std::vector<double>> expected{
      {"range", {-.25 * .43357075, -.25 * .06241877, 1.5 * .46211711, 1.5 * .90514822}},
      {"clip", {-.25, -.06241877, .46211711, .90514822}},
      {"none", {-.43357075, -.06241877, .46211711, .90514822}}};
  for (const auto& [scale, values] : expected) {
    const auto ub = method(concat("phi_range = [-0.25, 1.5]\nphi_momentum = 0.0\nphi_scale = '", scale, "'"));
    const auto round = round_of({1, 2});
    const auto state = ub->initialize(server());
    const std::vector<ClientUpdate> updates{
        update_of(*ub, state, round.participants[0], round, routing({6, 2, 1, 1}, 10)),
        update_of(*ub, state, round.participants[1], round, routing({8, 6, 4, 2}, 10))};
    const auto phi = ub->diagnostics(ub->aggregate(server(), state, round, updates)).at(kLayer + ".phi");
    EXPECT_TRUE(phi.to(at::kDouble).allclose(at::tensor(values, at::kDouble), 0, 1e-7)) << scale << ": " << phi;
  }
}

// theta moves from 1.0 to 0.9 with eta = .01. A mean of 5 steps gives 2.0, the literal 0.4 gives 25.
TEST(UbSmoeServer, PseudoGradientIsTheMoveOfTheRoundPerStep) {
  for (const auto& [toml, expected] : {std::pair{"", 2.0}, std::pair{"pg_gamma = \"literal_0.4\"", 25.0}}) {
    const auto ub = method(toml);
    const auto round = round_of({1, 2});
    auto state = ub->initialize(server());
    for (auto& [site, factors] : state.global.adapters) factors.a.fill_(1), factors.b.fill_(1);
    std::vector<ClientUpdate> updates{update_of(*ub, state, round.participants[0], round, routing({1, 0, 0, 0}, 1), 4),
                                      update_of(*ub, state, round.participants[1], round, routing({1, 1, 0, 0}, 1), 6)};
    for (auto& update : updates)
      for (auto& [site, factors] : update.payload.adapters)
        factors.a = at::full_like(factors.a, 0.9), factors.b = at::full_like(factors.b, 0.9);
    const auto next = ub->aggregate(server(), state, round, updates);
    const auto& extras = next.global.extras;
    EXPECT_TRUE(extras.at(kUp + ".pseudo_grad_a").allclose(at::full({kExperts, kRank, 3}, expected), 1e-5));
    EXPECT_TRUE(extras.at(kDown + ".pseudo_grad_b").allclose(at::full({kExperts, 3, kRank}, expected), 1e-5));
    EXPECT_FALSE(extras.contains(kQuery + ".pseudo_grad_a"));
    const auto norm = ub->diagnostics(next).at(kLayer + ".pseudo_grad_norm");
    EXPECT_TRUE(norm.allclose(at::full({kExperts}, expected * unit_norm(), at::kDouble), 1e-5)) << norm;
  }
}

TEST(UbSmoeServer, SendsPseudoGradientsToTrainingClientsAndPhiWhereItIsUsed) {
  const auto count = [](const lora::Payload& payload, std::string_view end) {
    return std::count_if(payload.extras.begin(), payload.extras.end(), [&](auto& e) { return e.first.ends_with(end); });
  };
  const auto ub = method("phi_at_eval = false");
  const auto state = ub->initialize(server());
  const auto training = ub->broadcast(state, client(0, 1), round_of({1}));
  const auto evaluation = ub->broadcast(state, client(0, 1, false), {});
  EXPECT_EQ(count(training, ".pseudo_grad_a"), 2);
  EXPECT_EQ(count(training, ".phi"), 1);
  EXPECT_TRUE(evaluation.extras.empty());
  const auto bare = method("num_candidates = 0\npg = false");
  EXPECT_TRUE(bare->broadcast(bare->initialize(server()), client(0, 1), round_of({1})).extras.empty());
}

TEST(UbSmoeServer, RejectsADenseModelAndMoreCandidatesThanExperts) {
  auto dense = server();
  dense.num_experts = 0;
  EXPECT_THROW(method()->initialize(dense), Error);
  EXPECT_THROW(method("num_candidates = 5")->initialize(server()), Error);
  EXPECT_THROW(method("dmr_mode = \"candidate_wide\"\nnum_candidates = 2")->initialize(server()), Error);
}

TEST(UbSmoeRouting, RouterOptionsFollowTheConfig) {
  const auto options = [](const std::string& toml, bool trains = true) {
    const auto ub = method(toml);
    Client local(*ub, ub->broadcast(ub->initialize(server()), client(0, 3, trains), round_of({3})),
                 client(0, 3, trains));
    return local.setup.router;
  };
  const auto plain = options("");
  EXPECT_EQ(plain.top_k, 3);
  EXPECT_EQ(plain.num_candidates, 2);
  EXPECT_EQ(plain.mode, nn::ModulationMode::kCandidate);
  EXPECT_EQ(plain.gate_norm, nn::GateNorm::kRenormSelected);
  EXPECT_EQ(plain.modulation.count(kLayer), 1u);
  EXPECT_EQ(options("dmr_mode = \"preserve\"").mode, nn::ModulationMode::kPreserve);
  EXPECT_EQ(options("dmr_mode = \"preserve\"\nnum_candidates = 0").num_candidates, kExperts);
  EXPECT_EQ(options("num_candidates = 0").num_candidates, 0);
  EXPECT_EQ(options("", false).modulation.size(), 1u);
  EXPECT_TRUE(options("phi_at_eval = false", false).modulation.empty());
}

// s = (2.0, 1.8, 1.0, 0.5), phi = (-.7, .1, .9, .2), N_p = 2. The cases list the experts that each mode selects, and
// their weights at K = 3.
TEST(UbSmoeRouting, SelectionAndWeightsEqualTheHandComputedValues) {
  const auto logits = at::tensor({2.0, 1.8, 1.0, 0.5}, at::kDouble).view({1, 4});
  const auto select = [&](const std::string& toml, int64_t top_k) {
    const auto ub = method(toml);
    auto state = ub->initialize(server());
    state.global.extras.at(kLayer + ".phi").copy_(at::tensor({-.7f, .1f, .9f, .2f}));
    const auto client_profile = client(0, top_k);
    Client local(*ub, ub->broadcast(state, client_profile, round_of({top_k})), client_profile);
    return nn::route(logits, local.setup.router, local.setup.router.modulation.at(kLayer).to(at::kDouble), false);
  };
  const auto ids = [](std::vector<int64_t> values) { return at::tensor(values, at::kLong).view({1, -1}); };
  EXPECT_TRUE(select("", 1).experts.equal(ids({1})));
  EXPECT_TRUE(select("", 2).experts.equal(ids({1, 0})));
  const auto candidate = select("", 3), preserve = select("dmr_mode = \"preserve\"", 3);
  EXPECT_TRUE(candidate.experts.equal(ids({1, 0, 2})));
  EXPECT_TRUE(candidate.weights.to(at::kDouble)
                  .allclose(at::tensor({.51140921, .28066732, .20792347}, at::kDouble).view({1, 3}), 0, 1e-6));
  EXPECT_TRUE(std::get<0>(preserve.experts.sort(1)).equal(ids({0, 1, 2})));
  const auto by_expert = at::zeros({1, 4}, at::kDouble).scatter(1, preserve.experts, preserve.weights.to(at::kDouble));
  EXPECT_TRUE(by_expert.allclose(at::tensor({.36716540, .30060961, .33222499, 0.}, at::kDouble).view({1, 4}), 0, 1e-6));
  EXPECT_TRUE(select("dmr_mode = \"preserve\"", 1).experts.equal(ids({0})));
  EXPECT_TRUE(std::get<0>(select("num_candidates = 4", 2).experts.sort(1)).equal(ids({1, 2})));
}

// rho at K_c = 1 with a mean K of 1.5, or with the model's K of 8. Gt = 1e-3 stays below the clip.
TEST(UbSmoeClient, ScalesPseudoGradientsByRho) {
  const std::vector<std::pair<std::string, double>> cases{{"", std::sqrt(1.5)},
                                                          {"rho_fn = \"none\"", 1.0},
                                                          {"rho_fn = \"linear\"", 1.5},
                                                          {"rho_fn = \"inv_sqrt\"", std::sqrt(1 / 1.5)},
                                                          {"rho_fn = \"log\"", std::log(2.5)},
                                                          {"rho_ref = \"kmax\"", std::sqrt(8.0)}};
  for (const auto& [toml, rho] : cases) {
    const auto ub = through_adamw(toml);
    const auto round = round_of({1, 2});
    Client local(*ub, ub->broadcast(state_with(*ub, 1e-3), round.participants[0], round), round.participants[0]);
    local.micro_batches = {routing({5, 0, 5, 0}, 10)};
    ub->edit_gradients(local.step());
    for (const auto& grad : {local.grad_a(kUp), local.grad_b(kUp), local.grad_a(kDown), local.grad_b(kDown)}) {
      EXPECT_NEAR(grad[1].min().item<double>(), rho * 1e-3, 1e-9) << toml;
      EXPECT_NEAR(grad[3].max().item<double>(), rho * 1e-3, 1e-9) << toml;
      EXPECT_EQ(grad[0].abs().max().item<double>(), 0) << toml;
    }
    EXPECT_EQ(local.grad_a(kQuery).abs().max().item<double>(), 0);
    EXPECT_DOUBLE_EQ(means_of(local.metrics).at("pg_share"), 0.5);
  }
}

// Expert 0 is used in both micro-batches, 1 in the first only, 2 in none, 3 in the second only. They have 8 and 12
// tokens.
TEST(UbSmoeClient, IdlenessIsByStepByTokenOrByMicroBatch) {
  const std::vector<std::pair<std::string, std::vector<double>>> cases{
      {"step_union", {0, 0, 1, 0}},
      {"token_weighted", {1 - 15.0 / 20, 1 - 3.0 / 20, 1, 1 - 2.0 / 20}},
      {"micro_union", {0, 0.5, 1, 0.5}}};
  for (const auto& [activity, share] : cases) {
    const auto ub = through_adamw("pg_activity = \"" + activity + "\"");
    const auto round = round_of({1});
    Client local(*ub, ub->broadcast(state_with(*ub, 1e-3), round.participants[0], round), round.participants[0]);
    for (auto& [name, factors] : local.setup.adapters) factors.a.mutable_grad().fill_(0.25);
    local.micro_batches = {routing({5, 3, 0, 0}, 8), routing({10, 0, 0, 2}, 12)};
    ub->edit_gradients(local.step());
    for (int64_t e = 0; e < kExperts; ++e)
      EXPECT_NEAR(local.grad_a(kUp)[e].mean().item<double>(), 0.25 + share[static_cast<size_t>(e)] * 1e-3, 1e-7)
          << activity << " expert " << e;
  }
}

TEST(UbSmoeClient, ClipsByExpertByElementOrAsAWhole) {
  const auto run = [](const std::string& toml) {
    const auto ub = through_adamw(toml);
    const auto round = round_of({1});
    auto local = std::make_unique<Client>(*ub, ub->broadcast(state_with(*ub, 3.0), round.participants[0], round),
                                          round.participants[0]);
    local->setup.adapters.at(kQuery).a.mutable_grad().fill_(4.0);
    local->micro_batches = {routing({5, 5, 0, 0}, 5)};
    ub->edit_gradients(local->step());
    return local;
  };
  const auto by_expert = run("");
  EXPECT_NEAR(by_expert->grad_b(kDown)[2].max().item<double>(), 2.0 / unit_norm(), 1e-6);
  EXPECT_NEAR(means_of(by_expert->metrics).at("pg_norm"), 2.0, 1e-5);
  EXPECT_EQ(means_of(by_expert->metrics).at("pg_clipped"), 1.0);
  EXPECT_EQ(by_expert->grad_a(kQuery).max().item<double>(), 4.0);
  EXPECT_EQ(run("pg_clip_mode = \"elementwise\"")->grad_b(kDown)[2].max().item<double>(), 2.0);
  EXPECT_EQ(run("pg_clip_mode = \"off\"")->grad_b(kDown)[2].max().item<double>(), 3.0);
  const auto whole = run("pg_clip_mode = \"global_norm\"");
  const double norm = std::sqrt(2 * std::pow(3.0 * unit_norm(), 2) + 16.0 * kRank * 3);
  EXPECT_NEAR(whole->grad_b(kDown)[2].max().item<double>(), 3.0 * 2.0 / norm, 1e-6);
  EXPECT_NEAR(whole->grad_a(kQuery).max().item<double>(), 4.0 * 2.0 / norm, 1e-6);
  EXPECT_EQ(means_of(whole->metrics).at("pg_clipped"), 1.0);
}

// Experts 0, 1 and 3 are used. The pseudo-gradients have 1, 7, 10 and 3 times the norm of ones.
TEST(UbSmoeClient, ClipsRelativeToTheMedianOfTheExpertsInUse) {
  const auto sizes = at::tensor({1.f, 7.f, 10.f, 3.f}).view({-1, 1, 1});
  const auto injected = [&](const std::string& toml, double real, Metrics* metrics) {
    const auto ub = method("rho_fn = \"none\"\n" + toml);
    auto state = state_with(*ub, 1.0);
    for (auto& [name, tensor] : state.global.extras)
      if (name.find("pseudo_grad") != std::string::npos) tensor = tensor * sizes;
    const auto round = round_of({1});
    Client local(*ub, ub->broadcast(state, round.participants[0], round), round.participants[0]);
    for (const auto* site : {&kUp, &kDown})
      for (auto* tensor : {&local.setup.adapters.at(*site).a, &local.setup.adapters.at(*site).b})
        tensor->mutable_grad().copy_((sizes * real).expand_as(*tensor))[2].zero_();
    const double before = local.setup.adapters.at(kUp).b[2][0][0].item<double>();
    local.micro_batches = {routing({5, 3, 0, 0}, 8), routing({5, 3, 0, 1}, 9)};
    ub->edit_gradients(local.step(0.01));
    ub->edit_parameters(local.step(0.01));
    *metrics = local.metrics;
    const double moved = local.setup.adapters.at(kUp).b[2][0][0].item<double>() - before;
    return toml.find("adam_grad") == std::string::npos ? moved / -0.01 : local.grad_b(kUp)[2][0][0].item<double>();
  };
  Metrics metrics;
  EXPECT_NEAR(injected("", 1e-3, &metrics), 2.0 * 3, 1e-3);
  EXPECT_EQ(means_of(metrics).at("pg_clipped"), 1);
  EXPECT_NEAR(injected("pg_clip = 4.0", 1e-3, &metrics), 10, 1e-3);
  EXPECT_EQ(means_of(metrics).at("pg_clipped"), 0);
  EXPECT_NEAR(injected("pg_apply = \"adam_grad\"", 0.1, &metrics), 2.0 * 0.3, 1e-5);
}

/// Gradients and parameters after the edits of a step, and the reported metrics.
struct Edited {
  std::vector<at::Tensor> tensors;
  std::map<std::string, double> metrics;
};

Edited edited(const std::string& toml, nn::EngineKind engine, const std::vector<nn::RoutingByLayer>& micro_batches) {
  const auto ub = method(toml);
  const auto round = round_of({1, 2});
  auto state = state_with(*ub, 0);
  at::manual_seed(21);
  for (auto& [name, tensor] : state.global.extras)
    if (name.find("pseudo_grad") != std::string::npos) tensor = at::randn_like(tensor);
  Client local(*ub, ub->broadcast(state, round.participants[0], round), round.participants[0]);
  local.engine = engine;
  for (auto& [name, factors] : local.setup.adapters)
    for (auto* tensor : {&factors.a, &factors.b}) tensor->mutable_grad().copy_(at::randn_like(*tensor) * 0.2);
  for (int64_t step = 0; step < 2; ++step) {
    local.micro_batches = micro_batches;
    ub->edit_gradients(local.step());
    ub->edit_parameters(local.step());
  }
  local.metrics.read();
  Edited result{.tensors = {}, .metrics = means_of(local.metrics)};
  for (const auto& [name, factors] : local.setup.adapters)
    for (const auto* tensor : {&factors.a, &factors.b})
      result.tensors.insert(result.tensors.end(), {tensor->detach(), tensor->grad()});
  return result;
}

TEST(UbSmoeClient, EnginesGiveTheSameEdits) {
  const std::vector<std::vector<nn::RoutingByLayer>> steps{{routing({5, 3, 0, 0}, 8), routing({5, 3, 0, 1}, 9)},
                                                           {routing({0, 0, 0, 0}, 4)},
                                                           {routing({4, 3, 2, 1}, 5), routing({0, 0, 5, 1}, 5)}};
  for (const std::string clip : {"relative", "per_expert_norm", "elementwise", "global_norm", "off"})
    for (const std::string apply : {"adam_grad", "decoupled_sgd"})
      for (const std::string activity : {"step_union", "token_weighted", "micro_union"})
        for (const auto& micro_batches : steps) {
          const auto toml = concat("pg_clip = 0.8\npg_clip_mode = \"", clip, "\"\npg_apply = \"", apply,
                                   "\"\npg_activity = \"", activity, "\"");
          const auto kernels = edited(toml, nn::EngineKind::kKernels, micro_batches);
          const auto operators = edited(toml, nn::EngineKind::kAten, micro_batches);
          for (size_t i = 0; i < kernels.tensors.size(); ++i)
            EXPECT_TRUE(operators.tensors[i].allclose(kernels.tensors[i], 1e-5, 1e-6)) << toml << " tensor " << i;
          ASSERT_EQ(kernels.metrics.size(), operators.metrics.size()) << toml;
          for (const auto& [name, value] : kernels.metrics)
            EXPECT_NEAR(operators.metrics.at(name), value, 1e-5 * std::max(1.0, value)) << toml << ' ' << name;
        }
}

TEST(UbSmoeClient, DecoupledPseudoGradientsDoNotChangeTheGradient) {
  const auto ub = method("pg_apply = \"decoupled_sgd\"");
  const auto round = round_of({1});
  Client local(*ub, ub->broadcast(state_with(*ub, 0.01), round.participants[0], round), round.participants[0]);
  local.micro_batches = {routing({5, 0, 0, 0}, 5)};
  ub->edit_gradients(local.step(0.1));
  EXPECT_EQ(local.grad_a(kUp).abs().max().item<double>(), 0);
  ub->edit_parameters(local.step(0.1));
  const auto moved = local.setup.adapters.at(kUp).a.detach() - local.download.adapters.at(kUp).a;
  EXPECT_EQ(moved[0].abs().max().item<double>(), 0);
  EXPECT_TRUE(moved.slice(0, 1).allclose(at::full({3, kRank, 3}, -0.001), 1e-3)) << moved;
}

TEST(UbSmoePhi, PhiIsSentAndAveragedOnlyIfConfigured) {
  const auto round = round_of({1, 1});
  for (const std::string mode : {"off", "local_discard", "local_fedavg"}) {
    const auto ub = method("phi_update = \"off\"\nphi_train = \"" + mode + "\"");
    const auto state = ub->initialize(server());
    std::vector<ClientUpdate> updates;
    for (const auto& client_profile : round.participants) {
      Client local(*ub, ub->broadcast(state, client_profile, round), client_profile);
      EXPECT_EQ(local.setup.extra_trainables.size(), mode == "off" ? 0u : 1u);
      for (auto& [name, phi] : local.setup.extra_trainables) {
        phi.fill_(client_profile.id == 0 ? 0.2 : 0.4);
        EXPECT_EQ(local.setup.router.modulation.at(kLayer)[0].item<float>(), phi[0].item<float>());
      }
      updates.push_back(
          {client_profile, ub->upload(local.download, local.setup, routing({1, 1, 1, 1}, 4), local.view), 1});
      EXPECT_EQ(updates.back().payload.extras.contains(kLayer + ".phi"), mode == "local_fedavg");
    }
    const auto phi = ub->aggregate(server(), state, round, updates).global.extras.at(kLayer + ".phi");
    EXPECT_NEAR(phi.mean().item<double>(), mode == "local_fedavg" ? 0.3 : 0.0, 1e-6) << mode;
  }
}

TEST(UbSmoePhi, PhiIsTrainedButNotSentByDefault) {
  const auto ub = method();
  Client local(*ub, ub->broadcast(ub->initialize(server()), client(0, 2), round_of({2})), client(0, 2));
  EXPECT_EQ(local.setup.extra_trainables.size(), 1u);
  EXPECT_FALSE(
      ub->upload(local.download, local.setup, routing({1, 1, 1, 1}, 2), local.view).extras.contains(kLayer + ".phi"));
}

TEST(UbSmoePhi, PhiIsPenalisedOutsideItsRangeOrByItsSquare) {
  for (const auto& [penalty, expected] :
       {std::pair{"hinge", 0.5 * (0.25 + 1.0)}, std::pair{"l2", 0.5 * (2.25 + 4.0)}}) {
    const auto ub = method(concat("phi_train = \"local_discard\"\nlambda_phi = 0.5\nphi_penalty = \"", penalty, "\""));
    Client local(*ub, ub->broadcast(ub->initialize(server()), client(0, 1), round_of({1})), client(0, 1));
    local.setup.extra_trainables.at(kLayer + ".phi").copy_(at::tensor({1.5f, -2.f, 0.f, 0.f}));
    EXPECT_NEAR(ub->penalty(local.step()).item<double>(), expected, 1e-6) << penalty;
  }
  const auto ub = method("phi_train = \"off\"");
  Client local(*ub, ub->broadcast(ub->initialize(server()), client(0, 1), round_of({1})), client(0, 1));
  EXPECT_FALSE(ub->penalty(local.step()).defined());
}

TEST(UbSmoeConfig, ErrorsNameTheKeyAndAllowedValues) {
  for (const std::string toml : {"phi_momentum = 1.5", "phi_range = [0.5, 1.0]", "phi_range = [1.0]", "pg_clip = 0.0",
                                 "util_eps = 0.0", "lambda_phi = -1.0", "num_candidates = -1", "momentum = 0.9",
                                 "rho_fn = \"cube\"", "pg_source = \"gradient\""}) {
    try {
      method(toml);
      ADD_FAILURE() << toml << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kConfig) << toml;
    }
  }
}

TEST(UbSmoeConfig, WrittenKeysAreReadBackEqual) {
  const auto write = [](const std::string& toml) {
    config::Writer writer;
    find_method("ub-smoe").write(config::Table::parse(toml, "test"), writer);
    return writer.text();
  };
  const auto wide = write("dmr_mode = \"candidate_wide\"");
  EXPECT_NE(wide.find("num_candidates = 16"), std::string::npos) << wide;
  EXPECT_EQ(write(wide), wide);
  EXPECT_NE(write("").find("num_candidates = 2"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::methods::ubsmoe::steps
