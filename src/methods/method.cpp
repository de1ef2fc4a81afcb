#include "methods/method.h"

#include <ATen/ATen.h>

#include <utility>

namespace evenkeel {
namespace {

LoraFactors detach(const LoraFactors& factors) {
  return {factors.a.detach(), factors.b.detach(), factors.core.defined() ? factors.core.detach() : at::Tensor{},
          factors.scaling};
}

const LoraFactors& sent_by(const ClientUpdate& update, const std::string& site) {
  const auto found = update.payload.adapters.find(site);
  EK_CHECK(found != update.payload.adapters.end(), kShape, "aggregate: client ", update.client.id, " did not send ",
           site);
  return found->second;
}

/// sum_c p_c theta_c of one tensor of one site.
at::Tensor mean_of(at::Tensor LoraFactors::*factor, const std::string& site, const std::vector<double>& weights,
                   std::span<const ClientUpdate> updates) {
  std::vector<at::Tensor> parts;
  for (const auto& update : updates) parts.push_back(sent_by(update, site).*factor);
  return weighted_mean(parts, weights);
}

}  // namespace

std::map<std::string, double> Metrics::means() const {
  std::map<std::string, double> result;
  for (const auto& [name, mean] : means_)
    if (mean.second > 0) result[name] = mean.first / mean.second;
  return result;
}

LocalSetup FederatedMethod::prepare(const Payload& download, const ClientView& view) const {
  LocalSetup setup;
  setup.adapters = clone(download.adapters);
  setup.router.top_k = view.client.top_k;
  return setup;
}

at::Tensor FederatedMethod::extra_loss(const StepView&) const { return {}; }
void FederatedMethod::edit_gradients(const StepView&) const {}
void FederatedMethod::edit_parameters(const StepView&) const {}

Payload FederatedMethod::upload(const Payload&, const LocalSetup& setup, const RoutingByLayer&,
                                const ClientView&) const {
  Payload payload;
  for (const auto& [site, factors] : setup.adapters) payload.adapters[site] = detach(factors);
  return payload;
}

ServerState FederatedMethod::initialize(const ServerView& server) const {
  EK_CHECK(server.rank > 0, kConfig, "the LoRA rank is ", server.rank, ", allowed: 1 or more");
  ServerState state;
  state.global.adapters =
      make_adapters(server.sites, server.rank, server.alpha / static_cast<double>(server.rank), server.seed);
  return state;
}

Payload FederatedMethod::broadcast(const ServerState& state, const ClientProfile&, const RoundView&) const {
  return {.adapters = state.global.adapters, .extras = {}};
}

ServerState FederatedMethod::aggregate(const ServerView&, const ServerState& state, const RoundView& round,
                                       std::span<const ClientUpdate> updates) const {
  EK_CHECK(!updates.empty() && updates.size() == round.weights.size(), kInternal, "aggregate: ", updates.size(),
           " updates for ", round.weights.size(), " weights");
  ServerState next = state;
  ++next.round;
  for (auto& [site, factors] : next.global.adapters) {
    factors.a = mean_of(&LoraFactors::a, site, round.weights, updates);
    factors.b = mean_of(&LoraFactors::b, site, round.weights, updates);
    if (factors.core.defined()) factors.core = mean_of(&LoraFactors::core, site, round.weights, updates);
  }
  check_finite(next.global.adapters, concat("aggregate of round ", round.round));
  return next;
}

TensorMap FederatedMethod::diagnostics(const ServerState&) const { return {}; }

}  // namespace evenkeel
