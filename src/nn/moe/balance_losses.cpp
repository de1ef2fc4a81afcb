// Dimension names: L layers, T tokens, E experts.
#include "nn/moe/balance_losses.h"

#include <ATen/ATen.h>

#include <vector>

namespace evenkeel::nn {
namespace {

/// Returns the mean over layers of one value per layer.
at::Tensor mean_of_layers(const at::Tensor& loss_L) { return loss_L.sum() / static_cast<double>(loss_L.size(0)); }

}  // namespace

StackedRouting::StackedRouting(const RoutingByLayer& routing) {
  if (routing.empty()) return;
  std::vector<at::Tensor> logits, counts;
  for (const auto& [layer, stats] : routing) logits.push_back(stats.router_logits), counts.push_back(stats.counts);
  logits_LTE = at::stack(logits);
  counts_LE = at::stack(counts).to(logits_LTE.scalar_type());
}

at::Tensor load_balance_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  const auto f_LE = routing.counts_LE / routing.counts_LE.sum(1, /*keepdim=*/true);
  const auto experts = static_cast<double>(f_LE.size(1));
  return mean_of_layers(experts * (f_LE * routing.logits_LTE.softmax(-1).mean(1)).sum(1));
}

at::Tensor pooled_load_balance_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  const auto all_NE = routing.logits_LTE.flatten(0, 1);
  const auto f_E = routing.counts_LE.sum(0) / static_cast<double>(all_NE.size(0));
  return static_cast<double>(all_NE.size(1)) * (f_E * all_NE.softmax(-1).mean(0)).sum();
}

at::Tensor router_z_loss(const StackedRouting& routing) {
  if (!routing.logits_LTE.defined()) return {};
  return mean_of_layers(routing.logits_LTE.logsumexp(-1).square().mean(1));
}

}  // namespace evenkeel::nn
