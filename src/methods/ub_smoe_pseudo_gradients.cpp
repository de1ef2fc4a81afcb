#include "methods/ub_smoe_pseudo_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/system/parallel.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::methods::ubsmoe {
namespace {

constexpr std::string_view kA = ".pseudo_grad_a", kB = ".pseudo_grad_b";
constexpr const char* kNorms = "pseudo_grad_norms";  // [L, E] of the pseudo-gradients, in LocalSetup::notes

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

/// Returns the median of the chosen values of each layer as at::median() defines it: the lower of two middle values. It
/// is 0 if no value is chosen. No value is read.
/// \param others_LE  bool, true: the value is not chosen
at::Tensor median_L1(const at::Tensor& values_LE, const at::Tensor& others_LE) {
  const double last = std::numeric_limits<double>::infinity();
  const auto ordered_LE = std::get<0>(values_LE.masked_fill(others_LE, last).sort(1));
  const auto count_L1 = others_LE.size(1) - others_LE.sum(1, /*keepdim=*/true);
  const auto middle_L1 = ordered_LE.gather(1, (count_L1 - 1).div(2, "trunc"));  // place 0 without values
  return middle_L1.masked_fill(count_L1.eq(0), 0);
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

/// Adds `factor` times the injection to the targets of layer `l`, the only one whose scales it reads.
/// \return [E] float64, norms of the injection over an expert's tensors
at::Tensor add_injection(const Injection& injection, const ExpertLayer& layer, int64_t l, double factor) {
  const auto share_E = injection.share_LE[l], scale_E = injection.scale_LE[l];
  auto norm_E = at::zeros_like(share_E);
  auto* norms = norm_E.mutable_data_ptr<double>();
  const auto *shares = share_E.const_data_ptr<double>(), *scales = scale_E.const_data_ptr<double>();
  for_each_piece(norm_E.numel(), [&](int64_t e) {
    double squares = 0;
    for (size_t j = 0; j < layer.target.size() && shares[e] > 0; ++j) {
      const auto& g = layer.pseudo_grad[j];
      const auto add = g.scalar_type() == at::kDouble ? add_as<double> : add_as<float>;
      squares += add(layer.target[j], g, e, factor * shares[e], scales[e], injection.bound);
    }
    norms[e] = shares[e] * std::sqrt(squares);
  });
  return norm_E;
}

/// Returns the norms of each expert over one list of tensors per layer.
at::Tensor expert_norms_LE(nn::EngineKind engine, std::span<const ExpertLayer> layers,
                           std::vector<at::Tensor> ExpertLayer::*list) {
  std::vector<at::Tensor> norms;
  for (const auto& layer : layers)
    norms.push_back(engine == nn::EngineKind::kAten ? expert_norm_by_operators(layer.*list)
                                                    : expert_norm_E(layer.*list));
  return at::stack(norms);
}

/// Lists the layers with adapted experts, and gives each its targets.
std::vector<ExpertLayer> expert_layers(const StepView& step,
                                       const std::function<at::Tensor(const at::Tensor& theta)>& target) {
  std::map<std::string, ExpertLayer> layers;
  for (const auto& [name, site] : step.view.sites) {
    if (site.experts == 0) continue;
    auto& layer = layers[site.moe_layer];
    layer.name = site.moe_layer;
    const auto& factors = step.setup.adapters.at(name);
    const auto add = [&](const at::Tensor& theta, std::string_view kind) {
      layer.theta.push_back(theta);
      layer.pseudo_grad.push_back(step.download.extras.at(concat(name, kind)));
      layer.target.push_back(target(theta));
    };
    add(factors.a, kA), add(factors.b, kB);
  }
  std::vector<ExpertLayer> list;
  for (auto& [name, layer] : layers) list.push_back(std::move(layer));
  return list;
}

}  // namespace

std::string pseudo_grad_norm_of(const std::string& layer) { return layer + ".pseudo_grad_norm"; }

at::Tensor idle_share_LE(PgActivity activity, std::span<const nn::RoutingByLayer> micro_batches,
                         std::span<const ExpertLayer> layers) {
  std::vector<at::Tensor> counts;
  int64_t tokens = 0;  // the same for all layers
  for (const auto& routing : micro_batches) {
    for (const auto& layer : layers) counts.push_back(routing.at(layer.name).counts);
    tokens += routing.at(layers.front().name).tokens;
  }
  const auto batches = static_cast<int64_t>(micro_batches.size());
  const auto counts_BLE = at::stack(counts).unflatten(0, {batches, -1});
  switch (activity) {
    case PgActivity::kStepUnion:
      return counts_BLE.sum(0).eq(0).to(at::kDouble);
    case PgActivity::kTokenWeighted:
      return 1 - counts_BLE.sum(0).to(at::kDouble) / static_cast<double>(std::max<int64_t>(tokens, 1));
    case PgActivity::kMicroUnion:
      return counts_BLE.eq(0).sum(0).to(at::kDouble) / static_cast<double>(batches);
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
  const auto layers = expert_layers(step, target);
  if (layers.empty()) return;
  const auto injection = injection_of(step, layers);
  if (step.engine == nn::EngineKind::kAten) {
    const auto norm_LE = add_by_operators(injection, step.setup.notes.at(kNorms), layers, factor);
    return report_by_operators(step.metrics, injection.share_LE, norm_LE, injection.clipped_LE,
                               options_.pg_clip_mode != PgClipMode::kGlobalNorm);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto l = static_cast<int64_t>(i);
    const auto norm_E = add_injection(injection, layers[i], l, factor);
    report(step.metrics, injection.share_LE[l], norm_E, injection.clipped_LE[l]);
  }
}

/// Determines how rho Gt is clipped: per expert, per element, or not here (R14), because the norm of the whole gradient
/// is clipped later. Norms of Gt do not change within a round and are computed once.
Injection PseudoGradients::injection_of(const StepView& step, std::span<const ExpertLayer> layers) const {
  const double rho = scale(step);
  Injection injection{.share_LE = idle_share_LE(options_.pg_activity, step.micro_batches, layers)};
  injection.scale_LE = at::full_like(injection.share_LE, rho);
  const auto mode = options_.pg_clip_mode;
  const bool per_expert = mode == PgClipMode::kRelative || mode == PgClipMode::kPerExpertNorm;
  auto& norm_LE = step.setup.notes[kNorms];
  if (!norm_LE.defined() && (per_expert || step.engine == nn::EngineKind::kAten))
    norm_LE = expert_norms_LE(step.engine, layers, &ExpertLayer::pseudo_grad);
  if (mode == PgClipMode::kElementwise) {
    std::vector<at::Tensor> above;
    for (const auto& layer : layers) above.push_back(any_above_E(layer.pseudo_grad, options_.pg_clip / rho));
    injection.bound = options_.pg_clip;
    injection.clipped_LE = at::stack(above);
  } else if (per_expert) {
    const auto limit_L1 = clip_limit_L1(step, layers, injection.share_LE);
    injection.clipped_LE = norm_LE.mul(rho).gt(limit_L1);
    injection.scale_LE = at::where(injection.clipped_LE, limit_L1 / norm_LE, injection.scale_LE);
  } else {
    injection.clipped_LE = at::zeros_like(injection.share_LE, at::kBool);
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
/// \param share_LE  how idle experts were in the step, by pg_activity \return [L, 1] float64
at::Tensor PseudoGradients::clip_limit_L1(const StepView& step, std::span<const ExpertLayer> layers,
                                          const at::Tensor& share_LE) const {
  const auto& gt_norm_LE = step.setup.notes.at(kNorms);
  if (options_.pg_clip_mode != PgClipMode::kRelative)
    return at::full({gt_norm_LE.size(0), 1}, options_.pg_clip, gt_norm_LE.options());
  const bool by_step = options_.pg_activity == PgActivity::kStepUnion;
  const auto unused_LE = by_step ? share_LE : idle_share_LE(PgActivity::kStepUnion, step.micro_batches, layers);
  return options_.pg_clip * median_L1(options_.pg_apply == PgApply::kAdamGrad
                                          ? expert_norms_LE(step.engine, layers, &ExpertLayer::target)
                                          : gt_norm_LE,
                                      unused_LE.ne(0));
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
