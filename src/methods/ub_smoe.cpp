// UB-SMoE: universally balanced sparse mixture-of-experts. Tran, Nguyen-Le, Ruffini, Dzaferagic, "UB-SMoE: Universally
// Balanced Sparse Mixture-of-Experts for Resource-adaptive Federated Fine-tuning of Foundation Models", ICML 2026,
// Algorithms 1-3. Readings of what the paper leaves open: docs/ambiguities.md, by R-number.
//
//   client   m = s + phi on the N_p candidates, top K_c of m           dynamic modulated routing (nn/moe/routing.h)
//            g_i = rho_c Gt_i for an expert i that no token chose      universal pseudo-gradient
//                                                                      (ub_smoe_pseudo_gradients.h)
//   server   Theta' = sum_c p_c Theta_c                                FedAvg
//            Gt_i = (Theta_i - Theta'_i) / (eta Gamma)                 expert tensors only
//            u_i = sum_c p_c a_ci / n_c,   phit_i = tanh(u* / (u_i + eps) - 1),   phi' = (1 - zeta) phit + zeta phi
//
// Dimension names: L layers, E experts.
#include <ATen/ATen.h>

#include <algorithm>

#include "base/plain/log.h"
#include "methods/method_registry.h"
#include "methods/ub_smoe_no_effect.h"
#include "methods/ub_smoe_options.h"
#include "methods/ub_smoe_pseudo_gradients.h"
#include "nn/dense/stacked.h"

namespace evenkeel::methods::ubsmoe {
namespace {

constexpr double kMostPhi = 1000;      // of an upload, in units of phi_range; router scores are of the order of 10
constexpr double kLiteralGamma = 0.4;  // R12: the paper's number of local epochs, used as a number of iterations

std::string phi_of(const std::string& layer) { return layer + ".phi"; }
std::string counts_of(const std::string& layer) { return layer + ".counts"; }
std::string tokens_of(const std::string& layer) { return layer + ".tokens"; }
std::string utilization_of(const std::string& layer) { return layer + ".utilization"; }
constexpr const char* kMaxTopK = "k_max";

at::Tensor scalar(double value) { return at::scalar_tensor(value, at::kDouble); }

/// Returns sum_c p_c K_c over the participants.
double mean_top_k(const RoundView& round) {
  double mean = 0;
  for (size_t c = 0; c < round.participants.size(); ++c)
    mean += round.weights[c] * static_cast<double>(round.participants[c].top_k);
  return mean;
}

/// Returns Gamma: the mean number of optimiser steps of a client (R12).
double mean_steps(const RoundView& round, const Uploads& uploads) {
  const auto mean = uploads.sum(round.weights, [](const ClientUpdate& update, double weight) {
    return scalar(weight * static_cast<double>(update.steps));
  });
  EK_CHECK(mean.item<double>() > 0, kInternal, "aggregate: no client did an optimiser step");
  return mean.item<double>();
}

class UbSmoe : public FederatedMethod {
 public:
  explicit UbSmoe(const Options& options) : options_(options), pseudo_gradients_(options) {}

  // --- client ---

  LocalSetup prepare(const lora::Payload& download, const ClientView& view) const override {
    auto setup = FederatedMethod::prepare(download, view);
    if (view.client.trains && needs_oracle())
      setup.reference_top_k = static_cast<int64_t>(download.extras.at(kMaxTopK).item<double>());
    if (!routes_with_phi(view.client)) return setup;
    for (const auto& [name, phi_E] : download.extras) {
      if (!name.ends_with(".phi")) continue;
      const auto own_E = phi_E.clone();
      set_candidates(setup.router, phi_E.numel());
      setup.router.modulation[name.substr(0, name.rfind('.'))] = own_E;
      if (view.client.trains && options_.phi_train != PhiTrain::kOff) setup.extra_trainables[name] = own_E;
    }
    return setup;
  }

  /// Returns the penalty of phi (R2). Without phi_train there is none.
  at::Tensor penalty(const StepView& step) const override {
    std::vector<at::Tensor> phi;  // [E] per layer
    for (const auto& [name, phi_E] : step.setup.extra_trainables) phi.push_back(phi_E);
    if (phi.empty() || options_.lambda_phi == 0) return {};
    return options_.lambda_phi * penalty_of(nn::stacked(phi));
  }

  void edit_gradients(const StepView& step) const override {
    if (options_.pg && !step.micro_batches.empty()) pseudo_gradients_.edit_gradients(step);
  }

  void edit_parameters(const StepView& step) const override {
    if (options_.pg && !step.micro_batches.empty()) pseudo_gradients_.edit_parameters(step);
  }

  lora::Payload upload(const lora::Payload& download, const LocalSetup& setup, const nn::RoutingByLayer& counts,
                       const ClientView& view) const override {
    auto payload = FederatedMethod::upload(download, setup, counts, view);
    check_countable(counts, view.client);
    for (const auto& [layer, stats] : counts) {
      payload.extras[counts_of(layer)] = stats.counts.to(at::kInt);
      payload.extras[tokens_of(layer)] = at::full({1}, stats.tokens, at::kInt);
    }
    if (options_.phi_train == PhiTrain::kLocalFedavg)
      for (const auto& [name, phi_E] : setup.extra_trainables) payload.extras[name] = phi_E.detach();
    return payload;
  }

  void check_client_privacy() const override {
    EK_CHECK(!options_.pg, kConfig, "privacy.unit: method.ub-smoe.pg is true, allowed: false with privacy of clients, ",
             "where pseudo-gradients of idle experts would be noise");
    EK_CHECK(options_.phi_update == PhiUpdate::kOff && options_.phi_train != PhiTrain::kLocalFedavg, kConfig,
             "privacy.unit: method.ub-smoe.phi_update is ", config::name_of(options_.phi_update), " and phi_train ",
             config::name_of(options_.phi_train),
             ", allowed with privacy of clients: phi_update = \"off\" and phi_train = \"off\" or \"local_discard\"");
  }

  /// Returns the utilisation that aggregate() sums, and phi where clients train it.
  TensorMap summands(const ClientUpdate& own, double weight) const override {
    TensorMap parts;
    for (const auto& [name, tensor] : own.payload.extras)
      if (name.ends_with(".phi"))
        parts[name] = tensor.to(at::kDouble) * weight;
      else if (const auto layer = name.substr(0, name.rfind('.')); name == counts_of(layer))
        parts[utilization_of(layer)] = share_E(layer, own, weight);
    return parts;
  }

  // --- server ---

  /// Checks counts, and phi, which its penalty keeps near its range.
  void check_upload(const lora::Payload& upload, const ClientProfile& client) const override {
    check_routing_counts(upload, client);
    const double most = kMostPhi * std::max({1.0, -options_.phi_range[0], options_.phi_range[1]});
    for (const auto& [name, phi_E] : upload.extras)
      EK_CHECK(!name.ends_with(".phi") || phi_E.abs().max().item<double>() <= most, kData, name,
               " holds a magnitude of ", phi_E.abs().max().item<double>(), ", allowed: up to ", most);
  }

  ServerState initialize(const ServerView& server) const override {
    check(server);
    for (const auto& line : values_without_effect(options_)) log::warning("[train] ", line);
    auto state = FederatedMethod::initialize(server);
    state.memory[kMaxTopK] = scalar(static_cast<double>(server.max_top_k));
    for (const auto& layer : server.moe_layers)
      state.global.extras[phi_of(layer)] = at::zeros({server.num_experts}, at::kFloat);
    if (options_.pg) PseudoGradients::set(server.sites, state, state, 1.0);
    return state;
  }

  /// Sends Theta to all clients, phi to those that route with it, and Gt and the reference of rho to those that train.
  lora::Payload broadcast(const ServerState& state, const ClientProfile& client,
                          const RoundView& round) const override {
    auto payload = FederatedMethod::broadcast(state, client, round);
    for (const auto& [name, tensor] : state.global.extras)
      if (name.ends_with(".phi") ? routes_with_phi(client) : client.trains) payload.extras[name] = tensor;
    if (client.trains && options_.pg)
      payload.extras[kRhoReference] =
          options_.rho_ref == RhoRef::kKmax ? state.memory.at(kMaxTopK) : scalar(kbar(round));
    if (client.trains && needs_oracle()) payload.extras[kMaxTopK] = state.memory.at(kMaxTopK);
    return payload;
  }

  ServerState aggregate(const ServerView& server, const ServerState& state, const RoundView& round,
                        const Uploads& uploads) const override {
    auto next = FederatedMethod::aggregate(server, state, round, uploads);
    if (options_.pg) {
      const double gamma = options_.pg_gamma == PgGamma::kLiteral ? kLiteralGamma : mean_steps(round, uploads);
      PseudoGradients::set(server.sites, state, next, server.lr * gamma);
    }
    for (const auto& layer : server.moe_layers) {
      if (!uploads.has_sum(utilization_of(layer))) continue;  // check_client_privacy(): only records would have it
      const auto u_E = utilization_E(layer, round, uploads);
      const double target = balanced_utilization(round) / static_cast<double>(server.num_experts);
      auto& phi_E = next.global.extras.at(phi_of(layer));
      if (options_.phi_train == PhiTrain::kLocalFedavg && options_.modulates())
        phi_E = uploads.mean(phi_of(layer), round.weights);
      if (options_.phi_update == PhiUpdate::kUtilization) phi_E = updated_phi_E(phi_E, u_E, target);
      next.memory[utilization_of(layer)] = u_E;
    }
    return next;
  }

  /// Returns per layer, [E]: `.utilization` of the last round, `.phi` after it, and `.pseudo_grad_norm` over an
  /// expert's tensors.
  TensorMap diagnostics(const ServerState& state) const override {
    TensorMap result = state.memory;
    result.erase(kMaxTopK);
    for (const auto& [name, tensor] : state.global.extras)
      if (name.ends_with(".phi")) result[name] = tensor;
    return result;
  }

  lora::AdapterState pseudo_gradients(const ServerState& state) const override {
    return PseudoGradients::sent_in(state.global.extras);
  }

 private:
  void check(const ServerView& server) const {
    EK_CHECK(server.num_experts > 0, kConfig, "method ub-smoe routes between experts, but the model is dense");
    EK_CHECK(options_.num_candidates <= server.num_experts, kConfig, "method.ub-smoe.num_candidates is ",
             options_.num_candidates, ", allowed: 0 .. ", server.num_experts, ", the model's experts");
    EK_CHECK(options_.dmr_mode != DmrMode::kCandidateWide || options_.num_candidates >= server.max_top_k, kConfig,
             "method.ub-smoe.num_candidates is ", options_.num_candidates, ", dmr_mode candidate_wide needs ",
             server.max_top_k, ", the model's top-k, or more");
  }

  bool needs_oracle() const { return options_.pg && options_.pg_source == PgSource::kOracle; }

  /// Returns Kbar = sum_c p_c K_c over the round's participants, or over all clients (R8).
  double kbar(const RoundView& round) const {
    return options_.kbar_over == KbarOver::kClients ? round.mean_top_k_of_all : mean_top_k(round);
  }

  // --- dynamic modulated routing ---

  bool counts_per_selection() const { return options_.util_frequency == UtilFrequency::kPerSelection; }

  /// Returns the sum over experts of a balanced layer's utilisation (R7).
  double balanced_utilization(const RoundView& round) const { return counts_per_selection() ? 1.0 : kbar(round); }

  /// Returns u_i = sum_c p_c a_ci / n_c, whose sum over the experts of a layer is the participants' Kbar, or sum_c p_c
  /// a_ci / (n_c K_c), whose sum is 1 (R7).
  at::Tensor utilization_E(const std::string& layer, const RoundView& round, const Uploads& uploads) const {
    return uploads.sum(utilization_of(layer), round.weights,
                       [&](const ClientUpdate& update, double weight) { return share_E(layer, update, weight); });
  }

  /// Returns a client's part of u.
  at::Tensor share_E(const std::string& layer, const ClientUpdate& update, double weight) const {
    const double tokens = std::max(update.extra(tokens_of(layer)).item<double>(), 1.0);
    const double of_each = counts_per_selection() ? tokens * static_cast<double>(update.client.top_k) : tokens;
    return update.extra(counts_of(layer)).to(at::kDouble) * (weight / of_each);
  }

  bool routes_with_phi(const ClientProfile& client) const {
    return options_.modulates() && (client.trains || options_.phi_at_eval);
  }

  /// Selects the experts to which phi is added. To preserve no expert means to add phi to all of them.
  void set_candidates(nn::RouterOptions& router, int64_t num_experts) const {
    const bool preserve = options_.dmr_mode == DmrMode::kPreserve && options_.num_candidates > 0;
    router.mode = preserve ? nn::ModulationMode::kPreserve : nn::ModulationMode::kCandidate;
    router.num_candidates = options_.num_candidates > 0 ? options_.num_candidates : num_experts;
    router.raw_gates = options_.gate_scores == GateScores::kRaw;
  }

  /// Returns the sum of squares of phi, or of its distances to phi_range. A bound is a constant.
  at::Tensor penalty_of(const at::Tensor& phi_LE) const {
    if (options_.phi_penalty == PhiPenalty::kL2) return phi_LE.square().sum();
    return (phi_LE - phi_LE.detach().clamp(options_.phi_range[0], options_.phi_range[1])).square().sum();
  }

  /// Brings values in (-1, 1) into the range of phi by one reading of R4.
  at::Tensor in_range(const at::Tensor& pull_E) const {
    const double low = options_.phi_range[0], high = options_.phi_range[1];
    if (options_.phi_scale == PhiScale::kNone) return pull_E;
    if (options_.phi_scale == PhiScale::kClip) return pull_E.clamp(low, high);
    return at::where(pull_E.ge(0), pull_E * high, pull_E * -low);
  }

  /// Returns (1 - zeta) phit + zeta phi with phit = tanh(target / (u + eps) - 1) in the range.
  at::Tensor updated_phi_E(const at::Tensor& phi_E, const at::Tensor& u_E, double target) const {
    const auto phit_E = in_range((target / (u_E + options_.util_eps) - 1).tanh());
    return ((1 - options_.phi_momentum) * phit_E + options_.phi_momentum * phi_E.to(at::kDouble)).to(at::kFloat);
  }

  const Options options_;
  const PseudoGradients pseudo_gradients_;
};

constexpr std::array kMetrics{MetricRange{.name = "idle_share", .most = 1}, MetricRange{.name = "pg_share", .most = 1},
                              MetricRange{.name = "pg_norm"}, MetricRange{.name = "pg_clipped", .most = 1}};

}  // namespace
}  // namespace evenkeel::methods::ubsmoe

namespace evenkeel::methods {

MethodEntry ub_smoe() {
  return method_entry<ubsmoe::UbSmoe, ubsmoe::Options>(
      {.name = "ub-smoe",
       .title = "UB-SMoE",
       .paper = "Tran, Nguyen-Le, Ruffini, Dzaferagic: UB-SMoE, ICML 2026",
       .family = MethodFamily::kSparsity,
       .exact = false,
       .needs_experts = true,
       .gate_norm = nn::GateNorm::kRenormSelected,
       .from_sums = FromSums::kYes,
       .sends = "A and B of every adapted weight, how many tokens chose each expert, and phi where clients train it",
       .metrics = ubsmoe::kMetrics,
       .by_site = true});
}

}  // namespace evenkeel::methods
