// Dimension names: T tokens, E experts.
#include "nn/moe/balance_losses.h"

#include <ATen/ATen.h>

#include <vector>

namespace evenkeel::nn {
namespace {

/// Computes E sum_i f_i P_i from router scores. \param choices_E  how many token-choices each expert has, out of
/// `choices`
at::Tensor load_balance(const at::Tensor& logits_TE, const at::Tensor& choices_E, const at::Tensor& choices) {
  const auto f_E = choices_E.to(logits_TE.scalar_type()) / choices.to(logits_TE.scalar_type());
  return static_cast<double>(logits_TE.size(1)) * (f_E * logits_TE.softmax(-1).mean(0)).sum();
}

at::Tensor mean_over_layers(const RoutingByLayer& routing, at::Tensor (*layer_loss)(const RoutingStats&)) {
  at::Tensor sum;
  for (const auto& [layer, stats] : routing) {
    const auto loss = layer_loss(stats);
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum.defined() ? sum / static_cast<double>(routing.size()) : sum;
}

}  // namespace

at::Tensor load_balance_loss(const RoutingByLayer& routing) {
  return mean_over_layers(routing, [](const RoutingStats& stats) {
    return load_balance(stats.router_logits, stats.counts, stats.counts.sum());
  });
}

at::Tensor pooled_load_balance_loss(const RoutingByLayer& routing) {
  std::vector<at::Tensor> logits;
  at::Tensor choices_E;
  for (const auto& [layer, stats] : routing) {
    logits.push_back(stats.router_logits);
    choices_E = choices_E.defined() ? choices_E + stats.counts : stats.counts;
  }
  if (logits.empty()) return {};
  const auto all_TE = at::cat(logits);
  return load_balance(all_TE, choices_E, at::scalar_tensor(all_TE.size(0), at::kDouble));
}

at::Tensor router_z_loss(const RoutingByLayer& routing) {
  return mean_over_layers(routing,
                          [](const RoutingStats& stats) { return stats.router_logits.logsumexp(-1).square().mean(); });
}

}  // namespace evenkeel::nn
