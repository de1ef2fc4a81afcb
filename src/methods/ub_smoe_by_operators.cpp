// Implements UB-SMoE's pseudo-gradients with LibTorch's operators, on any device. It processes all experts of a layer
// at once, unlike ub_smoe_pseudo_gradients.cpp. No value is read before the step ends.
//
// Dimension names: L layers, E experts.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "methods/ub_smoe_pseudo_gradients.h"

namespace evenkeel::ubsmoe {
namespace {

/// Returns the norm of each expert over all its tensors [E, ...].
/// \return [E] float64
at::Tensor norms_E(std::span<const at::Tensor> tensors) {
  std::vector<at::Tensor> each;
  for (const auto& tensor : tensors)
    each.push_back(at::linalg_vector_norm(tensor.flatten(1), 2, 1, /*keepdim=*/false, at::kDouble));
  return at::linalg_vector_norm(at::stack(each), 2, 0);
}

/// Returns the median of the chosen values as at::median() defines it: the lower of two middle values. It is 0 if no
/// value is chosen.
at::Tensor median_of(const at::Tensor& values_E, const at::Tensor& chosen_E) {
  const double last = std::numeric_limits<double>::infinity();
  const auto ordered_E = std::get<0>(values_E.masked_fill(chosen_E.logical_not(), last).sort());
  const auto count = chosen_E.sum().view({1});
  const auto middle = ordered_E.gather(0, (count - 1).clamp_min(0).div(2, "floor"));
  return at::where(count.gt(0), middle, at::zeros_like(middle));
}

/// Reshapes one factor per slice so that it broadcasts over `stack`.
at::Tensor broadcastable(const at::Tensor& value_E, const at::Tensor& stack) {
  return value_E.to(stack.scalar_type()).view({-1, 1, 1});
}

/// Adds `factor` times the injection to every target.
/// \param norm_E  norms of g, used only without a bound
/// \return the norms of the injection
at::Tensor add_all(const Injection& injection, const at::Tensor& norm_E, std::span<const at::Tensor> g,
                   std::span<const at::Tensor> targets, double factor) {
  const bool bounded = std::isfinite(injection.bound);
  std::vector<at::Tensor> clamped;
  for (size_t j = 0; j < g.size(); ++j) {
    if (!bounded) {
      targets[j].addcmul_(g[j], broadcastable(injection.share_E * injection.scale_E * factor, g[j]));
      continue;
    }
    clamped.push_back((g[j] * broadcastable(injection.scale_E, g[j])).clamp_(-injection.bound, injection.bound));
    targets[j].addcmul_(clamped.back(), broadcastable(injection.share_E * factor, g[j]));
  }
  return injection.share_E * (bounded ? norms_E(clamped) : injection.scale_E * norm_E);
}

/// Records the metrics of all layers together, [L, E] each, with the weights of PseudoGradients::report().
void report_all(Metrics& metrics, const at::Tensor& share_LE, const at::Tensor& norm_LE, const at::Tensor& clipped_LE,
                bool clips) {
  const auto idle_LE = share_LE.gt(0), got_LE = norm_LE.gt(0);
  const auto layers = at::full({}, share_LE.size(0), share_LE.options()), got = got_LE.sum();
  const auto experts = static_cast<double>(share_LE.size(1));
  metrics.add_sum("idle_share", idle_LE.sum() / experts, layers);
  metrics.add_sum("pg_share", got / experts, layers);
  metrics.add_sum("pg_norm", norm_LE.sum(), got);
  if (clips) metrics.add_sum("pg_clipped", clipped_LE.logical_and(idle_LE).logical_and(got_LE.any(1, true)).sum(), got);
}

}  // namespace

void PseudoGradients::inject_by_operators(const StepView& step, const Target& target, double factor) const {
  std::vector<at::Tensor> shares, norms, clipped;
  for (const auto& [layer, stats] : step.micro_batches.front()) {
    const auto tensors = expert_tensors(step, layer);
    if (tensors.theta.empty()) continue;
    std::vector<at::Tensor> targets;
    for (const auto& theta : tensors.theta) targets.push_back(target(theta));
    const auto injection = injection_by_operators(step, layer, tensors);
    const auto& norm_E = step.setup.notes.at(pseudo_grad_norm_of(layer));
    norms.push_back(add_all(injection, norm_E, tensors.pseudo_grad, targets, factor));
    shares.push_back(injection.share_E);
    clipped.push_back(injection.clipped_E);
  }
  if (norms.empty()) return;
  report_all(step.metrics, at::stack(shares), at::stack(norms), at::stack(clipped),
             options_.pg_clip_mode != PgClipMode::kGlobalNorm);
}

/// Computes what injection_of() computes.
Injection PseudoGradients::injection_by_operators(const StepView& step, const std::string& layer,
                                                  const ExpertTensors& tensors) const {
  const double rho = scale(step);
  Injection injection{.share_E = idle_share_E(options_.pg_activity, step.micro_batches, layer)};
  injection.scale_E = at::full_like(injection.share_E, rho);
  injection.clipped_E = at::zeros_like(injection.share_E, at::kBool);
  auto& norm_E = step.setup.notes[pseudo_grad_norm_of(layer)];
  if (!norm_E.defined()) norm_E = norms_E(tensors.pseudo_grad);
  if (options_.pg_clip_mode == PgClipMode::kElementwise) {
    injection.bound = options_.pg_clip;
    injection.clipped_E = any_above_E(tensors.pseudo_grad, options_.pg_clip / rho);
  } else if (options_.pg_clip_mode == PgClipMode::kRelative || options_.pg_clip_mode == PgClipMode::kPerExpertNorm) {
    const auto limit = limit_by_operators(step, layer, tensors);
    injection.clipped_E = norm_E.mul(rho).gt(limit);
    injection.scale_E = at::where(injection.clipped_E, limit / norm_E, injection.scale_E);
  }
  return injection;
}

/// Computes what clip_limit() computes.
/// \return [1] float64
at::Tensor PseudoGradients::limit_by_operators(const StepView& step, const std::string& layer,
                                               const ExpertTensors& tensors) const {
  const auto used_E = idle_share_E(PgActivity::kStepUnion, step.micro_batches, layer).eq(0);
  const auto options = used_E.options().dtype(at::kDouble);
  if (options_.pg_clip_mode != PgClipMode::kRelative) return at::full({1}, options_.pg_clip, options);
  std::vector<at::Tensor> measures;
  for (size_t j = 0; j < tensors.theta.size(); ++j) {
    const auto& real = options_.pg_apply == PgApply::kAdamGrad ? tensors.theta[j].grad() : tensors.pseudo_grad[j];
    if (real.defined()) measures.push_back(real);
  }
  return measures.empty() ? at::zeros({1}, options) : options_.pg_clip * median_of(norms_E(measures), used_E);
}

void PseudoGradients::clip_by_operators(const StepView& step) const {
  const c10::NoGradGuard no_grad;
  auto grads = gradients_of(step.setup);
  if (grads.empty()) return;
  std::vector<at::Tensor> norms;
  for (const auto& grad : grads)
    norms.push_back(at::linalg_vector_norm(grad.flatten(), 2, {}, /*keepdim=*/false, at::kDouble));
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2);
  const auto factor = (options_.pg_clip / norm).clamp_max(1);
  step.metrics.add("pg_clipped", norm.gt(options_.pg_clip).to(at::kDouble));
  at::_foreach_mul_(grads, factor.to(grads.front().scalar_type()));
}

}  // namespace evenkeel::ubsmoe
