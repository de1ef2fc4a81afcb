#include "methods/expert_weights.h"

#include <ATen/ATen.h>

namespace evenkeel::methods {
namespace {

struct ExpertStack {
  const std::string &site, &layer;
  const at::Tensor& total_E;  // weight of the layer's experts over all clients
};

/// What is equal for all stacks of a round.
struct Averaging {
  const RoundView& round;
  const Uploads& uploads;
  const ExpertWeights& weights;
  UnusedExpert unused;
  std::string (*sum_name)(const std::string& layer);

  at::Tensor total_E(const std::string& layer) const {
    return uploads.sum(sum_name(layer), round.weights,
                       [&](const ClientUpdate& update, double weight) { return weights(layer, update, weight); });
  }

  /// Computes sum_c w_ci theta_ci. Experts without any weight get `before` or the p-weighted mean.
  at::Tensor mean(at::Tensor lora::LoraFactors::*factor, const ExpertStack& stack, const at::Tensor& before) const {
    const auto used_E = stack.total_E.gt(0);
    if (const auto summed = uploads.change(stack.site, factor)) {
      const auto total_E = at::where(used_E, stack.total_E, at::ones_like(stack.total_E)).view({-1, 1, 1});
      const auto mean = summed->before + (summed->change / total_E).to(at::kFloat);
      return at::where(used_E.view({-1, 1, 1}), mean, before);
    }
    const auto mean = uploads.mean(stack.site, factor, round.weights, [&](const ClientUpdate& update, double weight) {
      const auto own_E = weights(stack.layer, update, weight);
      return at::where(used_E, own_E / stack.total_E, at::zeros_like(own_E));
    });
    if (used_E.all().item<bool>()) return mean;
    const bool keep = unused == UnusedExpert::kKeep;
    return at::where(used_E.view({-1, 1, 1}), mean, keep ? before : uploads.mean(stack.site, factor, round.weights));
  }
};

}  // namespace

ServerState weighted_by_expert(const ServerView& server, const ServerState& state, const RoundView& round,
                               const Uploads& uploads, const ExpertWeights& weights, UnusedExpert unused,
                               std::string (*sum_name)(const std::string& layer)) {
  const Averaging averaging{round, uploads, weights, unused, sum_name};
  auto next = state;
  TensorMap totals;
  for (const auto& layer : server.moe_layers) totals[layer] = averaging.total_E(layer);
  for (auto& [site, factors] : next.global.adapters) {
    const auto& layer = server.sites.at(site).moe_layer;
    for (const auto factor : {&lora::LoraFactors::a, &lora::LoraFactors::b})
      factors.*factor = layer.empty() ? uploads.mean(site, factor, round.weights)
                                      : averaging.mean(factor, {site, layer, totals.at(layer)}, factors.*factor);
  }
  return next;
}

}  // namespace evenkeel::methods
