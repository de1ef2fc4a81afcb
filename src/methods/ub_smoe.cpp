// UB-SMoE: universally balanced sparse mixture-of-experts. Tran, Nguyen-Le, Ruffini, Dzaferagic, "UB-SMoE: Universally
// Balanced Sparse Mixture-of-Experts for Resource-adaptive Federated Fine-tuning of Foundation Models", ICML 2026,
// Algorithms 1-3. Readings of what the paper leaves open: docs/ambiguities.md, by R-number.
//
//   client   m = s + phi on the N_p candidates, top K_c of m           dynamic modulated routing (the arithmetic:
//   nn/routing)
//            g_i = rho_c Gt_i for an expert i that no token chose      universal pseudo-gradient
//   server   Theta' = sum_c p_c Theta_c                                FedAvg
//            Gt_i = (Theta_i - Theta'_i) / (eta Gamma)                 expert tensors only
//            u_i = sum_c p_c a_ci / n_c,   phit_i = tanh(u* / (u_i + eps) - 1),   phi' = (1 - zeta) phit + zeta phi
//
// Dimension names: E experts, N experts that get a pseudo-gradient.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "methods/method.h"

namespace evenkeel {
namespace {

using config::EnumName;

enum class DmrMode { kCandidate, kPreserve, kCandidateWide };
enum class PhiUpdate { kUtilization, kOff };
enum class PhiTrain { kOff, kLocalDiscard, kLocalFedavg };
enum class PhiPenalty { kHinge, kL2 };
enum class PgActivity { kStepUnion, kTokenWeighted, kMicroUnion };
enum class PgApply { kAdamGrad, kDecoupledSgd };
enum class PgClipMode { kRelative, kPerExpertNorm, kElementwise, kGlobalNorm, kOff };
enum class PgGamma { kOptSteps, kLiteral };
enum class RhoRef { kKbar, kKmax };
enum class RhoFn { kSqrt, kNone, kLinear, kInvSqrt, kLog };

constexpr auto names(DmrMode) {
  return std::array{EnumName{"candidate", DmrMode::kCandidate}, EnumName{"preserve", DmrMode::kPreserve},
                    EnumName{"candidate_wide", DmrMode::kCandidateWide}};
}
constexpr auto names(PhiUpdate) {
  return std::array{EnumName{"utilization", PhiUpdate::kUtilization}, EnumName{"off", PhiUpdate::kOff}};
}
constexpr auto names(PhiTrain) {
  return std::array{EnumName{"off", PhiTrain::kOff}, EnumName{"local_discard", PhiTrain::kLocalDiscard},
                    EnumName{"local_fedavg", PhiTrain::kLocalFedavg}};
}
constexpr auto names(PhiPenalty) {
  return std::array{EnumName{"hinge", PhiPenalty::kHinge}, EnumName{"l2", PhiPenalty::kL2}};
}
constexpr auto names(PgActivity) {
  return std::array{EnumName{"step_union", PgActivity::kStepUnion},
                    EnumName{"token_weighted", PgActivity::kTokenWeighted},
                    EnumName{"micro_union", PgActivity::kMicroUnion}};
}
constexpr auto names(PgApply) {
  return std::array{EnumName{"adam_grad", PgApply::kAdamGrad}, EnumName{"decoupled_sgd", PgApply::kDecoupledSgd}};
}
constexpr auto names(PgClipMode) {
  return std::array{EnumName{"relative", PgClipMode::kRelative},
                    EnumName{"per_expert_norm", PgClipMode::kPerExpertNorm},
                    EnumName{"elementwise", PgClipMode::kElementwise}, EnumName{"global_norm", PgClipMode::kGlobalNorm},
                    EnumName{"off", PgClipMode::kOff}};
}
constexpr auto names(PgGamma) {
  return std::array{EnumName{"opt_steps", PgGamma::kOptSteps}, EnumName{"literal_0.4", PgGamma::kLiteral}};
}
constexpr auto names(RhoRef) { return std::array{EnumName{"kbar", RhoRef::kKbar}, EnumName{"kmax", RhoRef::kKmax}}; }
constexpr auto names(RhoFn) {
  return std::array{EnumName{"sqrt", RhoFn::kSqrt}, EnumName{"none", RhoFn::kNone}, EnumName{"linear", RhoFn::kLinear},
                    EnumName{"inv_sqrt", RhoFn::kInvSqrt}, EnumName{"log", RhoFn::kLog}};
}

constexpr double kLiteralGamma = 0.4;    // R12: the setup's local epochs, read as a number of iterations
constexpr int64_t kWideCandidates = 16;  // R1b: satisfies K_max <= N_p << M at K_max = 8, M = 64

struct Config {
  DmrMode dmr_mode = DmrMode::kCandidate;
  int64_t num_candidates = 2;
  GateNorm gate_norm = GateNorm::kRenormSelected;
  PhiUpdate phi_update = PhiUpdate::kUtilization;
  double phi_momentum = 0.9;
  std::vector<double> phi_range = {-1.0, 1.0};
  double util_eps = 1e-8;
  PhiTrain phi_train = PhiTrain::kLocalDiscard;
  PhiPenalty phi_penalty = PhiPenalty::kHinge;
  double lambda_phi = 0.01;
  bool phi_at_eval = true;
  bool pg = true;
  PgActivity pg_activity = PgActivity::kStepUnion;
  PgApply pg_apply = PgApply::kDecoupledSgd;
  PgClipMode pg_clip_mode = PgClipMode::kRelative;
  double pg_clip = 2.0;
  PgGamma pg_gamma = PgGamma::kOptSteps;
  RhoRef rho_ref = RhoRef::kKbar;
  RhoFn rho_fn = RhoFn::kSqrt;

  void visit(auto& field) {
    field("dmr_mode", dmr_mode,
          "phi is added to the raw top N_p (candidate, candidate_wide) or to all but them (preserve)");
    field("num_candidates", num_candidates,
          "N_p, 0 .. experts; default 2, or 16 for candidate_wide; candidate with 0: no phi");
    field("gate_norm", gate_norm, kGateNormHelp);
    field("phi_update", phi_update, "the server moves phi by utilization; off: phi stays, but for phi_train");
    field("phi_momentum", phi_momentum, "zeta, 0 .. 1: how much of the last phi stays");
    field("phi_range", phi_range, "[min, max], min <= 0 <= max: bounds of phi, and where the hinge penalty begins");
    field("util_eps", util_eps, "added to a utilization before dividing by it, > 0");
    field("phi_train", phi_train,
          "clients also learn phi: off, and forget it (local_discard), or send it (local_fedavg)");
    field("phi_penalty", phi_penalty, "of a trained phi: hinge outside phi_range, or l2");
    field("lambda_phi", lambda_phi, "weight of that penalty, >= 0");
    field("phi_at_eval", phi_at_eval, "evaluation routes with phi");
    field("pg", pg, "pseudo-gradients for idle experts");
    field("pg_activity", pg_activity,
          "idle means: unused in the step, by share of tokens, or by share of micro-batches");
    field("pg_apply", pg_apply, "pseudo-gradients go through AdamW, or past it as theta -= lr * rho * Gt");
    field("pg_clip_mode", pg_clip_mode,
          "what pg_clip bounds: an expert's norm of rho * Gt, as a multiple of active experts' (relative) or as it is "
          "(per_expert_norm), each element, the norm of the whole gradient, or nothing (off)");
    field("pg_clip", pg_clip, "largest multiple, norm or element, > 0");
    field("pg_gamma", pg_gamma, "what Gt divides by: mean optimiser steps of a client, or 0.4");
    field("rho_ref", rho_ref, "x = ref / K_c with ref the mean K of the round's participants, or the checkpoint's K");
    field("rho_fn", rho_fn, "rho: sqrt(x), 1, x, sqrt(1 / x), ln(x + 1)");
  }

  void resolve(const config::Table& table) {
    if (dmr_mode == DmrMode::kCandidateWide && !table.contains("num_candidates")) num_candidates = kWideCandidates;
    table.check(num_candidates >= 0, "num_candidates", num_candidates, "0 .. the model's experts");
    table.check(phi_momentum >= 0 && phi_momentum <= 1, "phi_momentum", phi_momentum, "0 .. 1");
    table.check(phi_range.size() == 2 && phi_range[0] <= 0 && phi_range[1] >= 0 && std::isfinite(phi_range[0]) &&
                    std::isfinite(phi_range[1]),
                "phi_range", concat("[", join(phi_range), "]"), "[min, max] with min <= 0 <= max");
    table.check(util_eps > 0, "util_eps", util_eps, "above 0");
    table.check(lambda_phi >= 0, "lambda_phi", lambda_phi, "0 or more");
    table.check(pg_clip > 0, "pg_clip", pg_clip, "above 0");
    table.check(pg_apply == PgApply::kAdamGrad || pg_clip_mode != PgClipMode::kGlobalNorm, "pg_clip_mode",
                "global_norm",
                "relative, per_expert_norm, elementwise or off when pg_apply = decoupled_sgd, which is no part of the "
                "gradient");
  }

  bool modulates() const { return num_candidates > 0 || dmr_mode == DmrMode::kPreserve; }
};

std::string phi_of(const std::string& layer) { return layer + ".phi"; }
std::string counts_of(const std::string& layer) { return layer + ".counts"; }
std::string tokens_of(const std::string& layer) { return layer + ".tokens"; }
std::string utilization_of(const std::string& layer) { return layer + ".utilization"; }
std::string pseudo_grad_norm_of(const std::string& layer) { return layer + ".pseudo_grad_norm"; }
std::string pseudo_grad_a_of(const std::string& site) { return site + ".pseudo_grad_a"; }
std::string pseudo_grad_b_of(const std::string& site) { return site + ".pseudo_grad_b"; }
constexpr const char* kRhoReference = "rho.reference";
constexpr const char* kMaxTopK = "k_max";

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kDouble); }

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& part) { return sum.defined() ? sum + part : part; }

/// x [N], shaped to multiply `like` [N, ...] expert by expert.
at::Tensor per_expert(const at::Tensor& x_N, const at::Tensor& like) {
  return x_N.to(like.scalar_type()).view({-1, 1, 1}).expand({-1, like.size(1), 1});
}

/// Norm of each expert over all its tensors [N, ...]. \return [N] float64
at::Tensor expert_norm_N(std::span<const at::Tensor> tensors) {
  at::Tensor sum;
  for (const auto& tensor : tensors) sum = sum_of(sum, tensor.to(at::kDouble).flatten(1).square().sum(1));
  return sum.sqrt();
}

// --- what the server computes ---

/// Kbar = sum_c p_c K_c over the participants (R8).
double mean_top_k(const RoundView& round) {
  double mean = 0;
  for (size_t c = 0; c < round.participants.size(); ++c)
    mean += round.weights[c] * static_cast<double>(round.participants[c].top_k);
  return mean;
}

/// u_i = sum_c p_c a_ci / n_c: sums to Kbar over the experts of a layer (R7).
at::Tensor utilization_E(const std::string& layer, const RoundView& round, const Uploads& uploads) {
  return uploads.sum(round.weights, [&](const ClientUpdate& update, double weight) {
    const double tokens = std::max(update.extra(tokens_of(layer)).item<double>(), 1.0);
    return update.extra(counts_of(layer)).to(at::kDouble) * (weight / tokens);
  });
}

/// Gamma: optimiser steps of a client, in the mean (R12).
double mean_steps(const RoundView& round, const Uploads& uploads) {
  const auto mean = uploads.sum(round.weights, [](const ClientUpdate& update, double weight) {
    return scalar(weight * static_cast<double>(update.steps));
  });
  EK_CHECK(mean.item<double>() > 0, kInternal, "aggregate: no client did an optimiser step");
  return mean.item<double>();
}

// --- what the client computes ---

/// How idle each expert of a layer was in this step, in [0, 1]: the factor of its pseudo-gradient (R10, R17).
at::Tensor idle_share_E(PgActivity activity, std::span<const RoutingByLayer> micro_batches, const std::string& layer) {
  at::Tensor counts, unused;
  int64_t tokens = 0;
  for (const auto& routing : micro_batches) {
    const auto& stats = routing.at(layer);
    counts = sum_of(counts, stats.counts.to(at::kDouble));
    unused = sum_of(unused, stats.counts.eq(0).to(at::kDouble));
    tokens += stats.tokens;
  }
  switch (activity) {
    case PgActivity::kStepUnion:
      return counts.eq(0).to(at::kDouble);
    case PgActivity::kTokenWeighted:
      return 1 - counts / static_cast<double>(std::max<int64_t>(tokens, 1));
    case PgActivity::kMicroUnion:
      return unused / static_cast<double>(micro_batches.size());
  }
  fail(kInternal, "pg_activity out of range");
}

/// The adapter tensors of a layer's experts, [E, r, in] and [E, out, r], and their pseudo-gradients.
struct ExpertTensors {
  std::vector<at::Tensor> theta, pseudo_grad;
};

ExpertTensors expert_tensors(const StepView& step, const std::string& layer) {
  ExpertTensors result;
  for (const auto& [name, site] : step.view.sites) {
    if (site.experts == 0 || site.moe_layer != layer) continue;
    const auto& factors = step.setup.adapters.at(name);
    result.theta.insert(result.theta.end(), {factors.a, factors.b});
    result.pseudo_grad.push_back(step.download.extras.at(pseudo_grad_a_of(name)));
    result.pseudo_grad.push_back(step.download.extras.at(pseudo_grad_b_of(name)));
  }
  return result;
}

/// Scales the gradient of everything that trains so that its norm is at most `limit`. \return whether it was above
bool clip_whole_gradient(LocalSetup& setup, double limit) {
  std::vector<at::Tensor> grads;
  const auto collect = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.grad().defined()) grads.push_back(tensor.grad());
  };
  for (const auto& [name, factors] : setup.adapters) collect(factors.a), collect(factors.b);
  for (const auto& [name, tensor] : setup.extra_trainables) collect(tensor);
  double squares = 0;
  for (const auto& grad : grads) squares += grad.square().sum(at::kDouble).item<double>();
  if (squares <= limit * limit) return false;
  for (auto& grad : grads) grad.mul_(limit / std::sqrt(squares));
  return true;
}

/// Bounds the norm of each expert's slices g [N, ...]. \return [N] whose norm was above
at::Tensor clip_norms(std::vector<at::Tensor>& g, double limit) {
  const auto norm_N = expert_norm_N(g);
  const auto factor_N = limit / norm_N.clamp_min(std::max(limit, std::numeric_limits<double>::min()));
  for (auto& tensor : g) tensor.mul_(per_expert(factor_N, tensor));
  return norm_N.gt(limit);
}

/// Bounds each element of g [N, ...]. \return [N] who had one above
at::Tensor clip_elements(std::vector<at::Tensor>& g, double limit) {
  at::Tensor above_N;
  for (auto& tensor : g) {
    const auto here_N = tensor.abs().gt(limit).flatten(1).any(1);
    above_N = above_N.defined() ? above_N.logical_or(here_N) : here_N;
    tensor.clamp_(-limit, limit);
  }
  return above_N;
}

class UbSmoe : public FederatedMethod {
 public:
  explicit UbSmoe(const Config& config) : config_(config) {}

  // --- client ---

  LocalSetup prepare(const Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    setup.router.gate_norm = config_.gate_norm;
    if (!routes_with_phi(view.client)) return setup;
    for (const auto& [name, phi_E] : download.extras) {
      if (!name.ends_with(".phi")) continue;
      const auto own_E = phi_E.clone();
      set_candidates(setup.router, phi_E.numel());
      setup.router.modulation[name.substr(0, name.rfind('.'))] = own_E;
      if (view.client.trains && config_.phi_train != PhiTrain::kOff) setup.extra_trainables[name] = own_E;
    }
    return setup;
  }

  /// The penalty of phi (R2), once per forward. It depends on phi alone: without phi_train there is nothing to add.
  at::Tensor extra_loss(const StepView& step) const override {
    at::Tensor loss;
    for (const auto& [name, phi_E] : step.setup.extra_trainables)
      loss = sum_of(loss, config_.lambda_phi * penalty(phi_E));
    return loss;
  }

  void edit_gradients(const StepView& step) const override {
    if (config_.pg_apply != PgApply::kAdamGrad || !injects(step)) return;
    inject(step, [](const at::Tensor& theta, const at::Tensor& experts_N, const at::Tensor& g) {
      if (!theta.grad().defined()) theta.mutable_grad() = at::zeros_like(theta);
      theta.mutable_grad().index_add_(0, experts_N, g);
    });
    if (config_.pg_clip_mode == PgClipMode::kGlobalNorm)
      step.metrics.add("pg_clipped", clip_whole_gradient(step.setup, config_.pg_clip) ? 1 : 0);
  }

  void edit_parameters(const StepView& step) const override {
    if (config_.pg_apply != PgApply::kDecoupledSgd || !injects(step)) return;
    inject(step, [&](const at::Tensor& theta, const at::Tensor& experts_N, const at::Tensor& g) {
      theta.detach().index_add_(0, experts_N, g, -step.lr);
    });
  }

  Payload upload(const Payload& download, const LocalSetup& setup, const RoutingByLayer& counts,
                 const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    for (const auto& [layer, stats] : counts) {
      EK_CHECK(stats.tokens <= std::numeric_limits<int32_t>::max(), kData, "client ", view.client.id, " routed ",
               stats.tokens, " tokens in a round, allowed: below 2^31");
      payload.extras[counts_of(layer)] = stats.counts.to(at::kInt);
      payload.extras[tokens_of(layer)] = at::full({1}, stats.tokens, at::kInt);
    }
    if (config_.phi_train == PhiTrain::kLocalFedavg)
      for (const auto& [name, phi_E] : setup.extra_trainables) payload.extras[name] = phi_E.detach();
    return payload;
  }

  // --- server ---

  ServerState initialize(const ServerView& server) const override {
    check(server);
    auto state = FederatedMethod::initialize(server);
    state.memory[kMaxTopK] = scalar(static_cast<double>(server.max_top_k));
    for (const auto& layer : server.moe_layers)
      state.global.extras[phi_of(layer)] = at::zeros({server.num_experts}, at::kFloat);
    if (config_.pg) set_pseudo_gradients(server, state, state, 1.0);
    return state;
  }

  /// Theta; phi to those who route with it; Gt and what rho is relative to, to those who train.
  Payload broadcast(const ServerState& state, const ClientProfile& client, const RoundView& round) const override {
    auto payload = FederatedMethod::broadcast(state, client, round);
    for (const auto& [name, tensor] : state.global.extras)
      if (name.ends_with(".phi") ? routes_with_phi(client) : client.trains) payload.extras[name] = tensor;
    if (client.trains && config_.pg)
      payload.extras[kRhoReference] =
          config_.rho_ref == RhoRef::kKmax ? state.memory.at(kMaxTopK) : scalar(mean_top_k(round));
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    if (config_.pg) {
      const double gamma = config_.pg_gamma == PgGamma::kLiteral ? kLiteralGamma : mean_steps(round, uploads);
      set_pseudo_gradients(server, state, next, server.lr * gamma);
    }
    for (const auto& layer : server.moe_layers) {
      const auto u_E = utilization_E(layer, round, uploads);
      auto& phi_E = next.global.extras.at(phi_of(layer));
      if (config_.phi_train == PhiTrain::kLocalFedavg && config_.modulates())
        phi_E = uploads.mean(phi_of(layer), round.weights);
      if (config_.phi_update == PhiUpdate::kUtilization) phi_E = updated_phi_E(phi_E, u_E, mean_top_k(round));
      next.memory[utilization_of(layer)] = u_E;
    }
    return next;
  }

  /// Per layer, [E]: `.utilization` of the last round, `.phi` after it, `.pseudo_grad_norm` over an expert's tensors.
  TensorMap diagnostics(const ServerState& state) const override {
    TensorMap result = state.memory;
    result.erase(kMaxTopK);
    for (const auto& [name, tensor] : state.global.extras)
      if (name.ends_with(".phi")) result[name] = tensor;
    return result;
  }

 private:
  void check(const ServerView& server) const {
    EK_CHECK(server.num_experts > 0, kConfig, "method ub-smoe routes between experts, but the model is dense");
    EK_CHECK(config_.num_candidates <= server.num_experts, kConfig, "method.ub-smoe.num_candidates is ",
             config_.num_candidates, ", allowed: 0 .. ", server.num_experts, ", the model's experts");
    EK_CHECK(config_.dmr_mode != DmrMode::kCandidateWide || config_.num_candidates >= server.max_top_k, kConfig,
             "method.ub-smoe.num_candidates is ", config_.num_candidates, ", dmr_mode candidate_wide needs ",
             server.max_top_k, ", the model's top-k, or more");
  }

  // --- dynamic modulated routing ---

  bool routes_with_phi(const ClientProfile& client) const {
    return config_.modulates() && (client.trains || config_.phi_at_eval);
  }

  /// Preserving no expert puts phi on every one: the same as all being candidates.
  void set_candidates(RouterOptions& router, int64_t num_experts) const {
    const bool preserve = config_.dmr_mode == DmrMode::kPreserve && config_.num_candidates > 0;
    router.mode = preserve ? ModulationMode::kPreserve : ModulationMode::kCandidate;
    router.num_candidates = config_.num_candidates > 0 ? config_.num_candidates : num_experts;
  }

  at::Tensor penalty(const at::Tensor& phi_E) const {
    if (config_.phi_penalty == PhiPenalty::kL2) return phi_E.square().sum();
    return (config_.phi_range[0] - phi_E).relu().square().sum() + (phi_E - config_.phi_range[1]).relu().square().sum();
  }

  /// (1 - zeta) phit + zeta phi, phit = tanh(u* / (u + eps) - 1) scaled to the range (R4).
  at::Tensor updated_phi_E(const at::Tensor& phi_E, const at::Tensor& u_E, double kbar) const {
    const double target = kbar / static_cast<double>(u_E.numel());
    const auto pull_E = (target / (u_E + config_.util_eps) - 1).tanh();
    const auto phit_E = at::where(pull_E.ge(0), pull_E * config_.phi_range[1], pull_E * -config_.phi_range[0]);
    return ((1 - config_.phi_momentum) * phit_E + config_.phi_momentum * phi_E.to(at::kDouble)).to(at::kFloat);
  }

  // --- universal pseudo-gradient ---

  /// Gt = (Theta - Theta') / (eta Gamma) of every expert tensor (R15), and its norms.
  static void set_pseudo_gradients(const ServerView& server, const ServerState& old, ServerState& next,
                                   double divisor) {
    std::map<std::string, std::vector<at::Tensor>> by_layer;
    for (const auto& [name, site] : server.sites) {
      if (site.experts == 0) continue;
      const auto &before = old.global.adapters.at(name), &after = next.global.adapters.at(name);
      const auto g_a = (before.a - after.a).div_(divisor), g_b = (before.b - after.b).div_(divisor);
      next.global.extras[pseudo_grad_a_of(name)] = g_a;
      next.global.extras[pseudo_grad_b_of(name)] = g_b;
      by_layer[site.moe_layer].insert(by_layer[site.moe_layer].end(), {g_a, g_b});
    }
    for (const auto& [layer, tensors] : by_layer) next.memory[pseudo_grad_norm_of(layer)] = expert_norm_N(tensors);
  }

  double rho(double reference, int64_t top_k) const {
    const double x = reference / static_cast<double>(top_k);
    switch (config_.rho_fn) {
      case RhoFn::kSqrt:
        return std::sqrt(x);
      case RhoFn::kNone:
        return 1;
      case RhoFn::kLinear:
        return x;
      case RhoFn::kInvSqrt:
        return std::sqrt(1 / x);
      case RhoFn::kLog:
        return std::log(x + 1);
    }
    fail(kInternal, "rho_fn out of range");
  }

  bool injects(const StepView& step) const { return config_.pg && !step.micro_batches.empty(); }

  /// Calls apply(theta, experts_N, share * clip(rho Gt)) for every adapter tensor of every layer's idle experts.
  template <typename Apply>
  void inject(const StepView& step, const Apply& apply) const {
    const c10::NoGradGuard no_grad;
    const double scale = rho(step.download.extras.at(kRhoReference).item<double>(), step.view.client.top_k);
    for (const auto& [layer, stats] : step.micro_batches.front()) {
      const auto tensors = expert_tensors(step, layer);
      if (tensors.theta.empty()) continue;
      const auto share_E = idle_share_E(config_.pg_activity, step.micro_batches, layer);
      const auto experts_N = share_E.nonzero().squeeze(1);
      std::vector<at::Tensor> g;
      for (const auto& gt : tensors.pseudo_grad) g.push_back(gt.index_select(0, experts_N).mul_(scale));
      const auto clipped_N = clip(g, clip_limit(step, layer, tensors));
      const auto share_N = share_E.index_select(0, experts_N);
      for (size_t j = 0; j < g.size(); ++j) apply(tensors.theta[j], experts_N, g[j].mul_(per_expert(share_N, g[j])));
      report(step.metrics, expert_norm_N(g), clipped_N, share_E.numel());
    }
  }

  /// What rho Gt is clipped to: pg_clip, or that many times the median norm of the layer's experts that a token of the
  /// step chose (R14): of their real gradients, or past AdamW of their own Gt, which is what the last round moved them
  /// by.
  double clip_limit(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const {
    if (config_.pg_clip_mode != PgClipMode::kRelative) return config_.pg_clip;
    const auto used_E = idle_share_E(PgActivity::kStepUnion, step.micro_batches, layer).eq(0);
    const auto experts_N = used_E.nonzero().squeeze(1);
    std::vector<at::Tensor> measures;
    for (size_t j = 0; j < tensors.theta.size(); ++j) {
      const auto& real = config_.pg_apply == PgApply::kAdamGrad ? tensors.theta[j].grad() : tensors.pseudo_grad[j];
      if (real.defined()) measures.push_back(real.index_select(0, experts_N));
    }
    if (measures.empty() || experts_N.numel() == 0) return 0;
    return config_.pg_clip * expert_norm_N(measures).median().item<double>();
  }

  /// Per expert or per element (R14); the norm of the whole gradient is clipped when that is complete.
  /// \return [N] whom it changed
  at::Tensor clip(std::vector<at::Tensor>& g, double limit) const {
    switch (config_.pg_clip_mode) {
      case PgClipMode::kRelative:
      case PgClipMode::kPerExpertNorm:
        return clip_norms(g, limit);
      case PgClipMode::kElementwise:
        return clip_elements(g, limit);
      case PgClipMode::kGlobalNorm:
      case PgClipMode::kOff:
        return at::zeros({g[0].size(0)}, at::kBool);
    }
    fail(kInternal, "pg_clip_mode out of range");
  }

  /// Shares of a layer's experts that were idle and that got a pseudo-gradient other than zero, its norm, and the share
  /// of those whose bound made it smaller.
  void report(Metrics& metrics, const at::Tensor& norm_N, const at::Tensor& clipped_N, int64_t num_experts) const {
    const auto got = norm_N.gt(0).sum().item<int64_t>();
    metrics.add("idle_share", static_cast<double>(norm_N.numel()) / static_cast<double>(num_experts));
    metrics.add("pg_share", static_cast<double>(got) / static_cast<double>(num_experts));
    if (got == 0) return;
    const auto weight = static_cast<double>(got);
    metrics.add("pg_norm", norm_N.sum().item<double>() / weight, weight);
    if (config_.pg_clip_mode != PgClipMode::kGlobalNorm)
      metrics.add("pg_clipped", clipped_N.sum().item<double>() / weight, weight);
  }

  const Config config_;
};

}  // namespace

MethodEntry ub_smoe() {
  return method_entry<UbSmoe, Config>({.name = "ub-smoe",
                                       .title = "UB-SMoE",
                                       .paper = "Tran, Nguyen-Le, Ruffini, Dzaferagic: UB-SMoE, ICML 2026",
                                       .family = MethodFamily::kSparsity,
                                       .exact = false,
                                       .needs_experts = true});
}

}  // namespace evenkeel
