#include "methods/ub_smoe_pseudo_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::methods::ubsmoe {
namespace {

constexpr std::string_view kA = ".pseudo_grad_a", kB = ".pseudo_grad_b";
at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& part) { return sum.defined() ? sum + part : part; }

/// Returns the sum of squares of expert e's slice of a stack [E, ...].
template <typename T>
double squares_as(const at::Tensor& stack, int64_t e) {
  return nn::kernels::sum_of_squares(stack.const_data_ptr<T>() + e * stack.stride(0), stack.stride(0));
}
double squares_of(const at::Tensor& stack, int64_t e) {
  return stack.scalar_type() == at::kDouble ? squares_as<double>(stack, e) : squares_as<float>(stack, e);
}

/// Returns the norm of each expert over all its tensors [E, ...], which are float32 (float64 in tests).
/// \return [E] float64
at::Tensor expert_norm_E(std::span<const at::Tensor> tensors) {
  auto norm_E = at::zeros({tensors.front().size(0)}, at::kDouble);
  auto* norms = norm_E.mutable_data_ptr<double>();
  for_each_piece(norm_E.numel(), [&](int64_t e) {
    for (const auto& tensor : tensors) norms[e] += squares_of(tensor, e);
    norms[e] = std::sqrt(norms[e]);
  });
  return norm_E;
}

/// Returns the median of the chosen values as at::median() defines it: the lower of two middle values. It is 0 if no
/// value is chosen. No value is read.
/// \return [1]
at::Tensor median_of(const at::Tensor& values_E, const at::Tensor& chosen_E) {
  const double last = std::numeric_limits<double>::infinity();
  const auto ordered_E = std::get<0>(values_E.masked_fill(chosen_E.logical_not(), last).sort());
  const auto count = chosen_E.sum().view({1});
  const auto middle = ordered_E.gather(0, (count - 1).clamp_min(0).div(2, "floor"));
  return at::where(count.gt(0), middle, at::zeros_like(middle));
}

/// Scales the gradients of all trained tensors so that their total norm is at most `limit`.
/// \return whether the norm was above `limit`
bool clip_whole_gradient(const LocalSetup& setup, double limit) {
  auto grads = gradients_of(setup);
  double squares = 0;
  for (const auto& grad : grads) squares += grad.square().sum(at::kDouble).item<double>();
  if (squares <= limit * limit) return false;
  for (auto& grad : grads) grad.mul_(limit / std::sqrt(squares));
  return true;
}

/// Adds weight * clamp(scale * g[e], -bound, bound) to target[e].
/// \return the sum of squares of the clamped values
template <typename T>
double add_as(const at::Tensor& target, const at::Tensor& g, int64_t e, double weight, double scale, double bound) {
  const int64_t size = g.stride(0);
  return nn::kernels::add_clamped(static_cast<T>(weight), static_cast<T>(scale), static_cast<T>(bound),
                                  g.const_data_ptr<T>() + e * size, target.mutable_data_ptr<T>() + e * size, size);
}

/// Adds `factor` times the injection to every target.
/// \return [E] float64, norms of the injection over an expert's tensors
at::Tensor add_injection(const Injection& injection, std::span<const at::Tensor> g, std::span<const at::Tensor> targets,
                         double factor) {
  auto norm_E = at::zeros_like(injection.share_E);
  auto* norms = norm_E.mutable_data_ptr<double>();
  const auto* shares = injection.share_E.const_data_ptr<double>();
  const auto* scales = injection.scale_E.const_data_ptr<double>();
  for_each_piece(norm_E.numel(), [&](int64_t e) {
    double squares = 0;
    for (size_t j = 0; j < g.size() && shares[e] > 0; ++j) {
      const auto add = g[j].scalar_type() == at::kDouble ? add_as<double> : add_as<float>;
      squares += add(targets[j], g[j], e, factor * shares[e], scales[e], injection.bound);
    }
    norms[e] = shares[e] * std::sqrt(squares);
  });
  return norm_E;
}

at::Tensor expert_norms(nn::EngineKind engine, std::span<const at::Tensor> tensors) {
  return engine == nn::EngineKind::kAten ? expert_norm_by_operators(tensors) : expert_norm_E(tensors);
}

}  // namespace

std::string pseudo_grad_norm_of(const std::string& layer) { return layer + ".pseudo_grad_norm"; }

at::Tensor idle_share_E(PgActivity activity, std::span<const nn::RoutingByLayer> micro_batches,
                        const std::string& layer) {
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

std::vector<at::Tensor> gradients_of(const LocalSetup& setup) {
  std::vector<at::Tensor> grads;
  const auto collect = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.grad().defined()) grads.push_back(tensor.grad());
  };
  for (const auto& [name, factors] : setup.adapters) collect(factors.a), collect(factors.b);
  for (const auto& [name, tensor] : setup.extra_trainables) collect(tensor);
  return grads;
}

at::Tensor any_above_E(std::span<const at::Tensor> g, double bound) {
  at::Tensor above_E;
  for (const auto& tensor : g) {
    const auto here_E = tensor.abs().flatten(1).amax(1).gt(bound);
    above_E = above_E.defined() ? above_E.logical_or(here_E) : here_E;
  }
  return above_E;
}

PseudoGradients::ExpertTensors PseudoGradients::expert_tensors(const StepView& step, const std::string& layer) {
  ExpertTensors result;
  for (const auto& [name, site] : step.view.sites) {
    if (site.experts == 0 || site.moe_layer != layer) continue;
    const auto& factors = step.setup.adapters.at(name);
    result.theta.insert(result.theta.end(), {factors.a, factors.b});
    result.pseudo_grad.push_back(step.download.extras.at(concat(name, kA)));
    result.pseudo_grad.push_back(step.download.extras.at(concat(name, kB)));
  }
  return result;
}

/// Computes Gt = (Theta - Theta') / (eta Gamma) for every expert tensor.
void PseudoGradients::set(const lora::Sites& sites, const ServerState& old, ServerState& next, double divisor) {
  std::map<std::string, std::vector<at::Tensor>> by_layer;
  for (const auto& [name, site] : sites) {
    if (site.experts == 0) continue;
    const auto &before = old.global.adapters.at(name), &after = next.global.adapters.at(name);
    const auto g_a = (before.a - after.a).div_(divisor), g_b = (before.b - after.b).div_(divisor);
    next.global.extras[concat(name, kA)] = g_a;
    next.global.extras[concat(name, kB)] = g_b;
    by_layer[site.moe_layer].insert(by_layer[site.moe_layer].end(), {g_a, g_b});
  }
  for (const auto& [layer, tensors] : by_layer) next.memory[pseudo_grad_norm_of(layer)] = expert_norm_E(tensors);
}

lora::AdapterState PseudoGradients::sent_in(const TensorMap& extras) {
  lora::AdapterState sites;
  for (const auto& [name, g] : extras) {
    const auto site = name.substr(0, name.rfind('.'));
    if (name.ends_with(kA)) sites[site].a = g;
    if (name.ends_with(kB)) sites[site].b = g;
  }
  return sites;
}

void PseudoGradients::edit_gradients(const StepView& step) const {
  if (options_.pg_apply != PgApply::kAdamGrad) return;
  const auto gradient = [](const at::Tensor& theta) {
    if (!theta.grad().defined()) theta.mutable_grad() = at::zeros_like(theta);
    return theta.grad();
  };
  inject(step, gradient, 1.0);
  if (options_.pg_clip_mode != PgClipMode::kGlobalNorm) return;
  if (step.engine == nn::EngineKind::kAten)
    clip_by_operators(step, options_.pg_clip);
  else
    step.metrics.add("pg_clipped", clip_whole_gradient(step.setup, options_.pg_clip) ? 1 : 0);
}

void PseudoGradients::edit_parameters(const StepView& step) const {
  if (options_.pg_apply != PgApply::kDecoupledSgd) return;
  inject(
      step, [](const at::Tensor& theta) { return theta.detach(); }, -step.lr);
}

/// Adds factor * share * clip(rho Gt) to target(theta) for every adapter tensor theta of the experts of every layer.
/// Engine kernels processes one expert after the other in one pass, and skips experts that are not idle.
void PseudoGradients::inject(const StepView& step, const Target& target, double factor) const {
  const c10::NoGradGuard no_grad;
  const bool by_operators = step.engine == nn::EngineKind::kAten;
  std::vector<at::Tensor> shares, norms, clipped;
  for (const auto& [layer, stats] : step.micro_batches.front()) {
    const auto tensors = expert_tensors(step, layer);
    if (tensors.theta.empty()) continue;
    std::vector<at::Tensor> targets;
    for (const auto& theta : tensors.theta) targets.push_back(target(theta));
    const auto injection = injection_of(step, layer, tensors);
    if (!by_operators) {
      const auto norm_E = add_injection(injection, tensors.pseudo_grad, targets, factor);
      report(step.metrics, injection.share_E, norm_E, injection.clipped_E);
      continue;
    }
    const auto& norm_E = step.setup.notes.at(pseudo_grad_norm_of(layer));
    norms.push_back(add_by_operators(injection, norm_E, tensors.pseudo_grad, targets, factor));
    shares.push_back(injection.share_E);
    clipped.push_back(injection.clipped_E);
  }
  if (!norms.empty())
    report_by_operators(step.metrics, at::stack(shares), at::stack(norms), at::stack(clipped),
                        options_.pg_clip_mode != PgClipMode::kGlobalNorm);
}

/// Determines how rho Gt is clipped: per expert, per element, or not here (R14), because the norm of the whole gradient
/// is clipped later. Norms of Gt do not change within a round and are computed once.
Injection PseudoGradients::injection_of(const StepView& step, const std::string& layer,
                                        const ExpertTensors& tensors) const {
  const double rho = scale(step);
  Injection injection{.share_E = idle_share_E(options_.pg_activity, step.micro_batches, layer)};
  injection.scale_E = at::full_like(injection.share_E, rho);
  injection.clipped_E = at::zeros_like(injection.share_E, at::kBool);
  const auto mode = options_.pg_clip_mode;
  const bool per_expert = mode == PgClipMode::kRelative || mode == PgClipMode::kPerExpertNorm;
  auto& norm_E = step.setup.notes[pseudo_grad_norm_of(layer)];
  if (!norm_E.defined() && (per_expert || step.engine == nn::EngineKind::kAten))
    norm_E = expert_norms(step.engine, tensors.pseudo_grad);
  if (mode == PgClipMode::kElementwise) {
    injection.bound = options_.pg_clip;
    injection.clipped_E = any_above_E(tensors.pseudo_grad, options_.pg_clip / rho);
  } else if (per_expert) {
    const auto limit = clip_limit(step, layer, tensors);
    injection.clipped_E = norm_E.mul(rho).gt(limit);
    injection.scale_E = at::where(injection.clipped_E, limit / norm_E, injection.scale_E);
  }
  return injection;
}

double PseudoGradients::scale(const StepView& step) const {
  return rho(*step.download.extras.at(kRhoReference).const_data_ptr<double>(), step.view.client.top_k);
}

double PseudoGradients::rho(double reference, int64_t top_k) const {
  const double x = reference / static_cast<double>(top_k);
  switch (options_.rho_fn) {
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

/// Returns the norm to which rho Gt is clipped (R14): pg_clip, or pg_clip times the median norm of the layer's active
/// experts. The norm of an active expert is that of its gradient for pg_apply = "adam_grad", otherwise that of its own
/// Gt, by which the last round changed the expert.
/// \return [1] float64
at::Tensor PseudoGradients::clip_limit(const StepView& step, const std::string& layer,
                                       const ExpertTensors& tensors) const {
  const auto used_E = idle_share_E(PgActivity::kStepUnion, step.micro_batches, layer).eq(0);
  const auto options = used_E.options().dtype(at::kDouble);
  if (options_.pg_clip_mode != PgClipMode::kRelative) return at::full({1}, options_.pg_clip, options);
  std::vector<at::Tensor> measures;
  for (size_t j = 0; j < tensors.theta.size(); ++j) {
    const auto& real = options_.pg_apply == PgApply::kAdamGrad ? tensors.theta[j].grad() : tensors.pseudo_grad[j];
    if (real.defined()) measures.push_back(real);
  }
  return measures.empty() ? at::zeros({1}, options)
                          : options_.pg_clip * median_of(expert_norms(step.engine, measures), used_E);
}

/// Records four metrics of a layer: the shares of experts that were idle, that got a nonzero pseudo-gradient and that
/// were clipped, and the mean norm.
void PseudoGradients::report(Metrics& metrics, const at::Tensor& share_E, const at::Tensor& norm_E,
                             const at::Tensor& clipped_E) const {
  const auto idle_E = share_E.gt(0);
  const auto count = [](const at::Tensor& which_E) { return static_cast<double>(which_E.sum().item<int64_t>()); };
  const auto experts = static_cast<double>(share_E.numel()), got = count(norm_E.gt(0));
  metrics.add("idle_share", count(idle_E) / experts);
  metrics.add("pg_share", got / experts);
  if (got == 0) return;
  metrics.add("pg_norm", norm_E.sum().item<double>() / got, got);
  if (options_.pg_clip_mode != PgClipMode::kGlobalNorm)
    metrics.add("pg_clipped", count(clipped_E.logical_and(idle_E)) / got, got);
}

}  // namespace evenkeel::methods::ubsmoe
