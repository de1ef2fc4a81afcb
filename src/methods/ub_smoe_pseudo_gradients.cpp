#include "methods/ub_smoe_pseudo_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "nn/moe/expert_tensors.h"

namespace evenkeel::methods::ubsmoe {
namespace {

constexpr std::string_view kA = ".pseudo_grad_a", kB = ".pseudo_grad_b";
constexpr const char* kFactor = "global_norm_factor";  // of the step's pseudo-gradients, in LocalSetup::notes
constexpr const char* kNorms = "pseudo_grad_norms";    // [L, E] of the pseudo-gradients, in LocalSetup::notes

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

/// Returns the norms of each expert of each layer over one list of tensors. \return [L, E] float64
at::Tensor norms_LE(const nn::StepArithmetic& arithmetic, std::span<const nn::ExpertTerms> layers,
                    std::vector<at::Tensor> nn::ExpertTerms::*list) {
  std::vector<at::Tensor> norms;
  for (const auto& layer : layers) norms.push_back(arithmetic.expert_norms(layer.*list));
  return at::stack(norms);
}

/// Returns the gradient of a tensor, zeros if it had none.
at::Tensor gradient_of(const at::Tensor& theta) {
  if (!theta.grad().defined()) theta.mutable_grad() = at::zeros_like(theta);
  return theta.grad();
}

/// Lists the layers with adapted experts. \param target  gives the tensor to which a pseudo-gradient is added
ExpertLayers expert_layers(const StepView& step, const std::function<at::Tensor(const at::Tensor& theta)>& target) {
  std::map<std::string, nn::ExpertTerms> layers;
  for (const auto& [name, site] : step.view.sites) {
    if (site.experts == 0) continue;
    auto& layer = layers[site.moe_layer];
    const auto& factors = step.setup.adapters.at(name);
    const auto add = [&](const at::Tensor& theta, std::string_view kind) {
      layer.terms.push_back(step.download.extras.at(concat(name, kind)));
      layer.targets.push_back(target(theta));
    };
    add(factors.a, kA), add(factors.b, kB);
  }
  ExpertLayers list;
  for (auto& [name, tensors] : layers) list.names.push_back(name), list.tensors.push_back(std::move(tensors));
  return list;
}

}  // namespace

std::string pseudo_grad_norm_of(const std::string& layer) { return layer + ".pseudo_grad_norm"; }

at::Tensor idle_share_LE(PgActivity activity, std::span<const nn::RoutingByLayer> micro_batches,
                         std::span<const std::string> layers) {
  std::vector<at::Tensor> counts;
  int64_t tokens = 0;  // the same for all layers
  for (const auto& routing : micro_batches) {
    for (const auto& layer : layers) counts.push_back(routing.at(layer).counts);
    tokens += routing.at(layers.front()).tokens;
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
  for (const auto& [layer, tensors] : by_layer) next.memory[pseudo_grad_norm_of(layer)] = nn::expert_norms(tensors);
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
  const bool global = options_.pg_clip_mode == PgClipMode::kGlobalNorm;
  const c10::NoGradGuard no_grad;
  if (options_.pg_apply == PgApply::kAdamGrad) {
    inject(step, gradient_of, 1.0);
    if (global) step.metrics.add("pg_clipped", step.arithmetic.limit_norm(gradients_of(step.setup), options_.pg_clip));
  } else if (global) {
    limit_both(step);
  }
}

/// Limits the norm of real and pseudo-gradients together where the latter are no part of the gradient: adds them to
/// copies of the experts' gradients to find the norm, multiplies the real ones by the factor, and keeps it for those
/// that edit_parameters() adds.
void PseudoGradients::limit_both(const StepView& step) const {
  step.setup.notes.erase(kFactor);           // of the last step
  std::map<const void*, at::Tensor> copies;  // of experts, by the memory of the gradient
  auto layers = expert_layers(step, [&](const at::Tensor& theta) {
    const auto gradient = gradient_of(theta);
    return copies[gradient.data_ptr()] = gradient.clone();
  });
  if (layers.names.empty()) return;
  const auto injection = injection_of(step, layers);
  step.arithmetic.add_terms(layers.tensors, injection.scales, step.setup.notes.at(kNorms), 1.0);
  const auto gradients = gradients_of(step.setup);
  std::vector<at::Tensor> both;
  for (const auto& gradient : gradients) {
    const auto copy = copies.find(gradient.data_ptr());
    both.push_back(
        at::norm((copy == copies.end() ? gradient : copy->second), 2, at::IntArrayRef{}, false, at::kDouble));
  }
  const auto norm = at::stack(both).norm();
  const auto factor = (options_.pg_clip / norm).clamp_max(1);
  for (const auto& gradient : gradients) gradient.mul_(factor);
  step.setup.notes[kFactor] = factor;
  step.metrics.add("pg_clipped", norm.gt(options_.pg_clip).to(at::kDouble));
}

void PseudoGradients::edit_parameters(const StepView& step) const {
  if (options_.pg_apply != PgApply::kDecoupledSgd) return;
  inject(
      step, [](const at::Tensor& theta) { return theta.detach(); }, -step.lr);
}

/// Adds factor * share * clip(rho Gt) to target(theta) for every adapter tensor theta of the experts of every layer.
void PseudoGradients::inject(const StepView& step, const Target& target, double factor) const {
  const c10::NoGradGuard no_grad;
  auto layers = expert_layers(step, target);
  if (layers.names.empty()) return;
  const auto injection = injection_of(step, layers);
  report(step.metrics, injection,
         step.arithmetic.add_terms(layers.tensors, injection.scales, step.setup.notes.at(kNorms), factor));
}

/// Determines how rho Gt is clipped: per expert, per element, or not here (R14), because the norm of the whole gradient
/// is clipped later. Norms of Gt do not change within a round and are computed once.
Injection PseudoGradients::injection_of(const StepView& step, ExpertLayers& layers) const {
  const double rho = scale(step);
  const auto share_LE = idle_share_LE(options_.pg_activity, step.micro_batches, layers.names);
  auto& norm_LE = step.setup.notes[kNorms];
  if (!norm_LE.defined()) norm_LE = norms_LE(step.arithmetic, layers.tensors, &nn::ExpertTerms::terms);
  Injection injection{
      .scales = {take_source(options_.pg_source, step, share_LE, norm_LE, layers), at::full_like(share_LE, rho)}};
  const auto mode = options_.pg_clip_mode;
  if (mode == PgClipMode::kElementwise) {
    std::vector<at::Tensor> above;
    for (const auto& layer : layers.tensors) above.push_back(any_above_E(layer.terms, options_.pg_clip / rho));
    injection.scales.bound = options_.pg_clip;
    injection.clipped_LE = at::stack(above);
  } else if (mode == PgClipMode::kRelative || mode == PgClipMode::kPerExpertNorm) {
    const auto limit_L1 = clip_limit_L1(step, layers, share_LE);
    injection.clipped_LE = norm_LE.mul(rho).gt(limit_L1);
    injection.scales.scale_LE = at::where(injection.clipped_LE, limit_L1 / norm_LE, injection.scales.scale_LE);
  } else {
    injection.clipped_LE = at::zeros_like(share_LE, at::kBool);
    if (const auto factor = step.setup.notes.find(kFactor); factor != step.setup.notes.end())
      injection.scales.scale_LE *= factor->second;
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
at::Tensor PseudoGradients::clip_limit_L1(const StepView& step, const ExpertLayers& layers,
                                          const at::Tensor& share_LE) const {
  const auto& gt_norm_LE = step.setup.notes.at(kNorms);
  if (options_.pg_clip_mode != PgClipMode::kRelative)
    return at::full({gt_norm_LE.size(0), 1}, options_.pg_clip, gt_norm_LE.options());
  const bool by_step = options_.pg_activity == PgActivity::kStepUnion;
  const auto unused_LE = by_step ? share_LE : idle_share_LE(PgActivity::kStepUnion, step.micro_batches, layers.names);
  return options_.pg_clip * median_L1(options_.pg_apply == PgApply::kAdamGrad
                                          ? norms_LE(step.arithmetic, layers.tensors, &nn::ExpertTerms::targets)
                                          : gt_norm_LE,
                                      unused_LE.ne(0));
}

/// Records four metrics of all layers together: the shares of experts that were idle, that got a nonzero
/// pseudo-gradient and that were clipped, and the mean norm. No value is read. \param norm_LE  norms of what was added
void PseudoGradients::report(Metrics& metrics, const Injection& injection, const at::Tensor& norm_LE) const {
  const auto idle_LE = injection.scales.share_LE.gt(0), got_LE = norm_LE.gt(0);
  const auto got = got_LE.sum(at::kDouble);
  const auto experts = static_cast<double>(norm_LE.numel());  // the same in every step
  metrics.add("idle_share", idle_LE.sum(at::kDouble) / experts);
  metrics.add("pg_share", got / experts);
  metrics.add_sum("pg_norm", norm_LE.sum(), got);
  if (options_.pg_clip_mode == PgClipMode::kGlobalNorm) return;
  const auto clipped_LE = injection.clipped_LE.logical_and(idle_LE).logical_and(got_LE.any(1, true));
  metrics.add_sum("pg_clipped", clipped_LE.sum(at::kDouble), got);
}

}  // namespace evenkeel::methods::ubsmoe
