// Compares UB-SMoE's keys for studies with values computed here expert by expert: the sources of pseudo-gradients, the
// norm of real and pseudo-gradients together, utilisation per selection, and Kbar over all clients.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "methods/method_registry.h"
#include "methods/ub_smoe_sources.h"
#include "nn/engines/engine_of.h"
#include "nn/testing.h"

namespace evenkeel::methods::ubsmoe::controls {
namespace {

using testing::random_tensor;

constexpr int64_t kExperts = 5, kRank = 2;
const std::string kLayer = "model.layers.0.mlp", kUp = kLayer + ".experts.up_proj",
                  kDown = kLayer + ".experts.down_proj", kQuery = "model.layers.0.self_attn.q_proj";

const lora::Sites& sites() {
  static const lora::Sites result{{kUp, {.experts = kExperts, .in = 3, .out = 7, .moe_layer = kLayer}},
                                  {kDown, {.experts = kExperts, .in = 7, .out = 3, .moe_layer = kLayer}},
                                  {kQuery, {.experts = 0, .in = 3, .out = 6, .moe_layer = {}}}};
  return result;
}

ServerView server() {
  return {.sites = sites(),
          .moe_layers = {kLayer},
          .num_experts = kExperts,
          .max_top_k = 4,
          .rank = kRank,
          .scale = {.alpha = kRank, .rank = kRank},
          .lr = 0.01,
          .seed = 5};
}

nn::RoutingByLayer routing(std::vector<int64_t> counts, int64_t tokens) {
  return {{kLayer, {.router_logits = {}, .counts = at::tensor(counts, at::kLong), .tokens = tokens}}};
}

at::Tensor named(const std::string& name, const at::Tensor& like) {
  return random_tensor(like.sizes(), std::hash<std::string>()(name) % 1000, at::kFloat);
}

/// Calls visit(name, tensor) for A and B of each site.
void for_factors(lora::AdapterState& state, const std::function<void(const std::string&, at::Tensor&)>& visit) {
  for (auto& [site, factors] : state) visit(site + "/a", factors.a), visit(site + "/b", factors.b);
}

/// The tensors of a client's step: what it began with, and what the method's edits made of it.
struct Step {
  TensorMap gt, reference, gradient, parameter;  ///< before; keys are SITE/a and SITE/b
  TensorMap edited_gradient, edited_parameter;   ///< after
  std::map<std::string, double> metrics;
  int64_t reference_top_k = 0;
};

constexpr double kLr = 0.1;

/// Runs the edits of one step of a client with K_c = 1.
/// \param no_gt         expert whose pseudo-gradient is zero, -1: none
/// \param no_reference  expert without a gradient at the checkpoint's K, -1: none
Step step_of(const std::string& toml, const std::vector<nn::RoutingByLayer>& micro_batches,
             nn::EngineKind engine = nn::EngineKind::kKernels, int64_t no_gt = -1, int64_t no_reference = -1) {
  const auto method = find_method("ub-smoe").make(config::Table::parse(toml, "test"));
  const ClientProfile client{.id = 0, .budget = 1, .top_k = 1, .rank = kRank, .examples = 1, .trains = true};
  auto state = method->initialize(server());
  Step result;
  for (auto& [name, tensor] : state.global.extras) {
    if (name.find("pseudo_grad") == name.npos) continue;
    tensor = named(name, tensor);
    if (no_gt >= 0) tensor[no_gt].zero_();
    result.gt[name.substr(0, name.rfind('.')) + '/' + name.back()] = tensor;
  }
  const Common common;
  TensorMap memory;
  const ClientView view{client, sites(), common, {}, nn::GateNorm::kRenormSelected, 0, 1, memory};
  const auto download = method->broadcast(state, client, {.participants = {client}, .weights = {1.0}});
  auto setup = method->prepare(download, view);
  result.reference_top_k = setup.reference_top_k;
  lora::AdapterState reference = setup.adapters;
  for_factors(reference, [&](const std::string& name, at::Tensor& tensor) {
    tensor = named("reference" + name, tensor);
    if (no_reference >= 0 && tensor.dim() == 3) tensor[no_reference].zero_();
    result.reference[name] = tensor;
  });
  for_factors(setup.adapters, [&](const std::string& name, at::Tensor& tensor) {
    tensor.requires_grad_(true);
    tensor.mutable_grad() = named("gradient" + name, tensor);
    result.gradient[name] = tensor.grad().clone(), result.parameter[name] = tensor.detach().clone();
  });
  Metrics metrics;
  const StepView step{view, download, setup, micro_batches, kLr, metrics, nn::engine_of(engine).step(), &reference};
  method->edit_gradients(step);
  for_factors(setup.adapters, [&](const std::string& name, at::Tensor& tensor) {
    result.edited_gradient[name] = tensor.grad().clone();
  });
  method->edit_parameters(step);
  for_factors(setup.adapters, [&](const std::string& name, at::Tensor& tensor) {
    result.edited_parameter[name] = tensor.detach().clone();
  });
  metrics.read();
  result.metrics = metrics.means();
  return result;
}

/// Returns the norm of an expert over the tensors of the layer.
double norm_of(const TensorMap& tensors, int64_t expert) {
  double squares = 0;
  for (const auto& [name, tensor] : tensors)
    if (tensor.dim() == 3) squares += tensor[expert].to(at::kDouble).square().sum().item<double>();
  return std::sqrt(squares);
}

const std::string kPlain = "pg_apply = 'adam_grad'\npg_clip_mode = 'off'\nrho_fn = 'none'\n";

/// What an expert gets: share * (a tensor of `from` of expert `other`), at the norm of the expert's own Gt.
struct Given {
  double share = 0;
  int64_t other = 0;
};

void expect_given(const Step& step, const TensorMap& from, const std::vector<Given>& given, const std::string& what) {
  for (const auto& [name, before] : step.gradient) {
    const auto added = step.edited_gradient.at(name) - before;
    if (before.dim() != 3) {
      EXPECT_EQ(added.abs().max().item<double>(), 0) << what << ' ' << name;
      continue;
    }
    for (int64_t e = 0; e < kExperts; ++e) {
      const auto& [share, other] = given[static_cast<size_t>(e)];
      const double ratio = share == 0 ? 0 : norm_of(step.gt, e) / norm_of(from, other);
      EXPECT_TRUE(added[e].allclose(from.at(name)[other] * (share * ratio), 1e-4, 1e-6)) << what << ' ' << name << e;
    }
  }
}

// Tokens chose experts 1 and 3. Experts 0, 2 and 4 are idle.
const std::vector<nn::RoutingByLayer> kThreeIdle{routing({0, 5, 0, 0, 0}, 5), routing({0, 3, 0, 4, 0}, 7)};

TEST(UbSmoeSources, EachGivesItsTermsAtTheNormOfTheOwnPseudoGradient) {
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
    const auto own = step_of(kPlain, kThreeIdle, engine);
    expect_given(own, own.gt, {{1, 0}, {0}, {1, 2}, {0}, {1, 4}}, "own");
    const auto placebo = step_of(kPlain + "pg_source = 'placebo'", kThreeIdle, engine);
    expect_given(placebo, placebo.gt, {{1, 2}, {0}, {1, 4}, {0}, {1, 0}}, "placebo");
    const auto momentum = step_of(kPlain + "pg_source = 'momentum'", kThreeIdle, engine);
    expect_given(momentum, momentum.gt, {{.6, 0}, {.6, 1}, {.6, 2}, {.6, 3}, {.6, 4}}, "momentum");
    const auto oracle = step_of(kPlain + "pg_source = 'oracle'", kThreeIdle, engine);
    expect_given(oracle, oracle.reference, {{1, 0}, {0}, {1, 2}, {0}, {1, 4}}, "oracle");
    EXPECT_EQ(oracle.reference_top_k, 4) << "the K of the checkpoint";
    EXPECT_EQ(own.reference_top_k, 0) << "no second pass";
    for (const auto* step : {&own, &placebo, &oracle}) {
      const double mean = (norm_of(own.gt, 0) + norm_of(own.gt, 2) + norm_of(own.gt, 4)) / 3;
      EXPECT_NEAR(step->metrics.at("pg_norm"), mean, 1e-4 * mean);
    }
  }
}

TEST(UbSmoeSources, SharesByTokenAreKept) {
  const auto toml = kPlain + "pg_activity = 'token_weighted'\npg_source = ";
  const std::vector<nn::RoutingByLayer> tokens{routing({6, 3, 0, 1, 10}, 10)};
  const auto placebo = step_of(toml + "'placebo'", tokens);
  expect_given(placebo, placebo.gt, {{.4, 1}, {.7, 2}, {1, 3}, {.9, 0}, {0}}, "placebo");
  const auto momentum = step_of(toml + "'momentum'", tokens);
  expect_given(momentum, momentum.gt, {{.6, 0}, {.6, 1}, {.6, 2}, {.6, 3}, {.6, 4}}, "momentum");
}

TEST(UbSmoeSources, GiveNothingWhereThereIsNothing) {
  const auto alone = step_of(kPlain + "pg_source = 'placebo'", {routing({1, 1, 0, 1, 2}, 5)});
  expect_given(alone, alone.gt, {{0}, {0}, {0}, {0}, {0}}, "one idle expert");
  const auto of_zero = step_of(kPlain + "pg_source = 'placebo'", kThreeIdle, nn::EngineKind::kKernels, /*no_gt=*/2);
  expect_given(of_zero, of_zero.gt, {{0}, {0}, {0}, {0}, {1, 0}}, "expert 2 has no pseudo-gradient");
  const auto unreached = step_of(kPlain + "pg_source = 'oracle'", kThreeIdle, nn::EngineKind::kKernels, -1, 4);
  expect_given(unreached, unreached.reference, {{1, 0}, {0}, {1, 2}, {0}, {0}}, "no token reaches expert 4");
}

TEST(UbSmoeSources, AreClippedAndAppliedLikeTheOwnPseudoGradient) {
  for (const std::string source : {"placebo", "momentum", "oracle"}) {
    const auto step =
        step_of(concat("pg_clip_mode = 'per_expert_norm'\npg_clip = 0.5\npg_source = '", source, "'"), kThreeIdle);
    double squares = 0;
    for (const auto& [name, before] : step.parameter)
      if (before.dim() == 3)
        squares += (step.edited_parameter.at(name) - before)[2].to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(std::sqrt(squares), kLr * 0.5 * (source == "momentum" ? 0.6 : 1.0), 1e-5) << source;
    for (const auto& [name, before] : step.gradient) EXPECT_TRUE(step.edited_gradient.at(name).equal(before)) << source;
  }
}

TEST(UbSmoeSources, TheNextIdleExpertIsFoundAroundTheEnd) {
  const auto idle_LE = at::tensor({0, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0}).to(at::kBool).view({3, 5});
  const auto expected_LE = at::tensor({1, 3, 3, 4, 1, 3, 3, 3, 3, 3, 0, 1, 2, 3, 4}, at::kLong).view({3, 5});
  EXPECT_TRUE(next_idle_LE(idle_LE).equal(expected_LE)) << next_idle_LE(idle_LE);
}

/// Checks a step whose whole update is bounded: real gradients and pseudo-gradients shrink by the same factor.
void expect_bounded_as_a_whole(const std::string& activity, const std::vector<double>& share, double clip) {
  const auto toml = concat("rho_fn = 'none'\npg_clip_mode = 'global_norm'\npg_activity = '", activity,
                           "'\npg_clip = ", clip, "\npg_apply = ");
  for (const auto engine : {nn::EngineKind::kKernels, nn::EngineKind::kAten}) {
    const auto step = step_of(toml + "'decoupled_sgd'", kThreeIdle, engine);
    TensorMap pseudo;
    double squares = 0;
    for (const auto& [name, gradient] : step.gradient) {
      pseudo[name] = at::zeros_like(gradient);
      for (int64_t e = 0; gradient.dim() == 3 && e < kExperts; ++e)
        pseudo[name][e] = share[static_cast<size_t>(e)] * step.gt.at(name)[e];
      squares += (gradient + pseudo[name]).to(at::kDouble).square().sum().item<double>();
    }
    const double factor = std::min(1.0, clip / std::sqrt(squares));
    for (const auto& [name, gradient] : step.gradient) {
      EXPECT_TRUE(step.edited_gradient.at(name).allclose(gradient * factor, 1e-5, 1e-7)) << activity << ' ' << name;
      const auto moved = step.edited_parameter.at(name) - step.parameter.at(name);
      EXPECT_TRUE(moved.allclose(pseudo[name] * (-kLr * factor), 1e-4, 1e-6)) << activity << ' ' << name;
    }
    EXPECT_EQ(step.metrics.at("pg_clipped"), factor < 1 ? 1 : 0);
    const auto adam = step_of(toml + "'adam_grad'", kThreeIdle, engine);
    for (const auto& [name, gradient] : step.gradient)
      EXPECT_TRUE(adam.edited_gradient.at(name).allclose((gradient + pseudo[name]) * factor, 1e-5, 1e-6)) << name;
  }
}

TEST(UbSmoeGlobalNorm, BoundsRealAndPseudoGradientsTogetherHoweverTheyAreApplied) {
  expect_bounded_as_a_whole("step_union", {1, 0, 1, 0, 1}, 2.0);
  expect_bounded_as_a_whole("step_union", {1, 0, 1, 0, 1}, 1e6);
  expect_bounded_as_a_whole("token_weighted", {1, 1 - 8.0 / 12, 1, 1 - 4.0 / 12, 1}, 2.0);
}

ClientProfile client(int64_t id, int64_t top_k) {
  return {.id = id, .budget = 1, .top_k = top_k, .rank = kRank, .examples = 1, .trains = true};
}

/// Returns the state after a round of clients with K = 1 and 2, whose 10 tokens chose experts as `counts` say.
TensorMap after_a_round(const std::string& toml, double mean_top_k_of_all) {
  const auto method = find_method("ub-smoe").make(config::Table::parse(toml, "test"));
  RoundView round{.participants = {client(0, 1), client(1, 2)}, .weights = {.25, .75}};
  round.mean_top_k_of_all = mean_top_k_of_all;
  const auto state = method->initialize(server());
  const std::vector<std::vector<int64_t>> counts{{6, 2, 1, 1, 0}, {8, 6, 4, 2, 0}};
  std::vector<ClientUpdate> updates;
  for (size_t c = 0; c < 2; ++c) {
    TensorMap memory;
    const Common common;
    const auto& profile = round.participants[c];
    const ClientView view{profile, sites(), common, {}, nn::GateNorm::kRenormSelected, 0, 1, memory};
    const auto download = method->broadcast(state, profile, round);
    updates.push_back(
        {profile, method->upload(download, method->prepare(download, view), routing(counts[c], 10), view), 1});
  }
  auto seen = method->diagnostics(method->aggregate(server(), state, round, updates));
  seen["rho.reference"] = method->broadcast(state, round.participants[0], round).extras.at("rho.reference");
  return seen;
}

void expect_phi(const TensorMap& seen, const std::vector<double>& u, double target) {
  const auto used_E = seen.at(kLayer + ".utilization"), phi_E = seen.at(kLayer + ".phi");
  for (int64_t e = 0; e < kExperts; ++e) {
    const double own = u[static_cast<size_t>(e)];
    EXPECT_NEAR(used_E[e].item<double>(), own, 1e-12);
    EXPECT_NEAR(phi_E[e].item<double>(), 0.1 * std::tanh(target / (own + 1e-8) - 1), 1e-7);
  }
}

TEST(UbSmoeUtilization, PerSelectionSumsToOneAndIsBalancedAtOneOverM) {
  expect_phi(after_a_round("", 9), {.75, .5, .325, .175, 0}, 1.75 / kExperts);
  expect_phi(after_a_round("util_frequency = 'per_selection'", 9), {.45, .275, .175, .1, 0}, 1.0 / kExperts);
}

TEST(UbSmoeKbar, IsOfTheParticipantsOrOfAllClients) {
  EXPECT_EQ(after_a_round("", 3).at("rho.reference").item<double>(), 1.75);
  const auto all = after_a_round("kbar_over = 'clients'", 3);
  EXPECT_EQ(all.at("rho.reference").item<double>(), 3);
  expect_phi(all, {.75, .5, .325, .175, 0}, 3.0 / kExperts);
  EXPECT_EQ(after_a_round("kbar_over = 'clients'\nrho_ref = 'kmax'", 3).at("rho.reference").item<double>(), 4);
}

}  // namespace
}  // namespace evenkeel::methods::ubsmoe::controls
