// Dimension names: L layers, E experts.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "methods/ub_smoe_pseudo_gradients.h"

namespace evenkeel::methods::ubsmoe {
namespace {

/// Reshapes one factor per slice so that it broadcasts over a stack [E, ...].
at::Tensor per_slice(const at::Tensor& value_E) { return value_E.view({-1, 1, 1}); }

}  // namespace

at::Tensor expert_norm_by_operators(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> each;
  for (const auto& tensor : tensors)
    each.push_back(at::linalg_vector_norm(tensor.flatten(1), 2, 1, /*keepdim=*/false, at::kDouble));
  return at::linalg_vector_norm(at::stack(each), 2, 0);
}

at::Tensor add_by_operators(const Injection& injection, const at::Tensor& norm_LE, std::span<const ExpertLayer> layers,
                            double factor) {
  const bool bounded = std::isfinite(injection.bound);
  const auto type = layers.front().pseudo_grad.front().scalar_type();
  const auto scale_LE = bounded ? injection.scale_LE.to(type) : at::Tensor();
  const auto share_LE = bounded ? injection.share_LE : injection.share_LE * injection.scale_LE;
  const auto weight_LE = (share_LE * factor).to(type);
  std::vector<at::Tensor> norms;  // of clamped values
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto &targets = layers[i].target, &g = layers[i].pseudo_grad;
    const auto l = static_cast<int64_t>(i);
    const auto weight_E11 = per_slice(weight_LE[l]);
    std::vector<at::Tensor> clamped;
    for (size_t j = 0; bounded && j < g.size(); ++j)
      clamped.push_back((g[j] * per_slice(scale_LE[l])).clamp_(-injection.bound, injection.bound));
    for (size_t j = 0; j < g.size(); ++j) targets[j].addcmul_(bounded ? clamped[j] : g[j], weight_E11);
    if (bounded) norms.push_back(expert_norm_by_operators(clamped));
  }
  return share_LE * (bounded ? at::stack(norms) : norm_LE);
}

void report_by_operators(Metrics& metrics, const at::Tensor& share_LE, const at::Tensor& norm_LE,
                         const at::Tensor& clipped_LE, bool clips) {
  const auto idle_LE = share_LE.gt(0), got_LE = norm_LE.gt(0);
  const auto got = got_LE.sum(at::kDouble);
  const auto experts = static_cast<double>(share_LE.numel());  // of all layers, the same in every step
  metrics.add("idle_share", idle_LE.sum(at::kDouble) / experts);
  metrics.add("pg_share", got / experts);
  metrics.add_sum("pg_norm", norm_LE.sum(), got);
  if (!clips) return;
  const auto clipped = clipped_LE.logical_and(idle_LE).logical_and(got_LE.any(1, true)).sum(at::kDouble);
  metrics.add_sum("pg_clipped", clipped, got);
}

void clip_by_operators(const StepView& step, double limit) {
  const c10::NoGradGuard no_grad;
  auto grads = gradients_of(step.setup);
  if (grads.empty()) return;
  std::vector<at::Tensor> norms;
  for (const auto& grad : grads)
    norms.push_back(at::linalg_vector_norm(grad.flatten(), 2, {}, /*keepdim=*/false, at::kDouble));
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2);
  const auto factor = (limit / norm).clamp_max(1);
  step.metrics.add("pg_clipped", norm.gt(limit).to(at::kDouble));
  at::_foreach_mul_(grads, factor.to(grads.front().scalar_type()));
}

}  // namespace evenkeel::methods::ubsmoe
