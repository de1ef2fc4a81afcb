// Dimension names: L layers, T tokens, E experts.
#include "nn/moe/balance_losses.h"

#include <ATen/ATen.h>

#include <vector>

namespace evenkeel::nn {
namespace {

/// Returns the mean over all layers of one value per layer with logits.
at::Tensor mean_of_layers(const at::Tensor& loss_L, const StackedRouting& routing) {
  return loss_L.sum() / static_cast<double>(routing.layers);
}

}  // namespace

StackedRouting::StackedRouting(const RoutingByLayer& routing) : layers(static_cast<int64_t>(routing.size())) {
  std::vector<at::Tensor> logits, counts;
  for (const auto& [layer, stats] : routing) {
    all_counts_E.push_back(stats.counts);
    if (stats.router_logits.defined()) logits.push_back(stats.router_logits), counts.push_back(stats.counts);
  }
  if (logits.empty()) return;
  logits_LTE = at::stack(logits);
  counts_LE = at::stack(counts).to(logits_LTE.scalar_type());
}

at::Tensor load_balance_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  const auto f_LE = routing.counts_LE / routing.counts_LE.sum(1, /*keepdim=*/true);
  const auto experts = static_cast<double>(f_LE.size(1));
  return mean_of_layers(experts * (f_LE * routing.logits_LTE.softmax(-1).mean(1)).sum(1), routing);
}

at::Tensor pooled_load_balance_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  const auto all_NE = routing.logits_LTE.flatten(0, 1);
  const auto tokens = static_cast<double>(routing.layers * routing.logits_LTE.size(1));
  const auto f_E = at::stack(routing.all_counts_E).to(all_NE.scalar_type()).sum(0) / tokens;
  const auto p_E = all_NE.softmax(-1).mean(0) * (static_cast<double>(all_NE.size(0)) / tokens);
  return static_cast<double>(all_NE.size(1)) * (f_E * p_E).sum();
}

at::Tensor router_z_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  return mean_of_layers(routing.logits_LTE.logsumexp(-1).square().mean(1), routing);
}

}  // namespace evenkeel::nn
