#include "methods/ub_smoe_pseudo_gradients.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace evenkeel::ubsmoe {
namespace {

constexpr std::string_view kA = ".pseudo_grad_a", kB = ".pseudo_grad_b";
std::string pseudo_grad_norm_of(const std::string& layer) { return layer + ".pseudo_grad_norm"; }

at::Tensor sum_of(const at::Tensor& sum, const at::Tensor& part) { return sum.defined() ? sum + part : part; }

/// x [N], shaped to multiply `like` [N, ...] expert by expert.
at::Tensor per_expert(const at::Tensor& x_N, const at::Tensor& like) {
  return x_N.to(like.scalar_type()).view({-1, 1, 1}).expand({-1, like.size(1), 1});
}

/// Norm of each expert over all its tensors [N, ...]. \return [N] float64
at::Tensor expert_norm_N(std::span<const at::Tensor> tensors) {
  at::Tensor sum;
  for (const auto& tensor : tensors) sum = sum_of(sum, tensor.to(at::kDouble).flatten(1).square().sum(1));
  return sum.sqrt();
}

/// How idle each expert of a layer was in this step, in [0, 1]: the factor of its pseudo-gradient (R10, R17).
at::Tensor idle_share_E(PgActivity activity, std::span<const RoutingByLayer> micro_batches, const std::string& layer) {
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

/// Scales the gradient of everything that trains so that its norm is at most `limit`. \return whether it was above
bool clip_whole_gradient(LocalSetup& setup, double limit) {
  std::vector<at::Tensor> grads;
  const auto collect = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.grad().defined()) grads.push_back(tensor.grad());
  };
  for (const auto& [name, factors] : setup.adapters) collect(factors.a), collect(factors.b);
  for (const auto& [name, tensor] : setup.extra_trainables) collect(tensor);
  double squares = 0;
  for (const auto& grad : grads) squares += grad.square().sum(at::kDouble).item<double>();
  if (squares <= limit * limit) return false;
  for (auto& grad : grads) grad.mul_(limit / std::sqrt(squares));
  return true;
}

/// Bounds the norm of each expert's slices g [N, ...]. \return [N] whose norm was above
at::Tensor clip_norms(std::vector<at::Tensor>& g, double limit) {
  const auto norm_N = expert_norm_N(g);
  const auto factor_N = limit / norm_N.clamp_min(std::max(limit, std::numeric_limits<double>::min()));
  for (auto& tensor : g) tensor.mul_(per_expert(factor_N, tensor));
  return norm_N.gt(limit);
}

/// Bounds each element of g [N, ...]. \return [N] who had one above
at::Tensor clip_elements(std::vector<at::Tensor>& g, double limit) {
  at::Tensor above_N;
  for (auto& tensor : g) {
    const auto here_N = tensor.abs().gt(limit).flatten(1).any(1);
    above_N = above_N.defined() ? above_N.logical_or(here_N) : here_N;
    tensor.clamp_(-limit, limit);
  }
  return above_N;
}

}  // namespace

/// The adapter tensors of a layer's experts, [E, r, in] and [E, out, r], and their pseudo-gradients.
struct PseudoGradients::ExpertTensors {
  std::vector<at::Tensor> theta, pseudo_grad;
};

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

/// Gt = (Theta - Theta') / (eta Gamma) of every expert tensor.
void PseudoGradients::set(const Sites& sites, const ServerState& old, ServerState& next, double divisor) {
  std::map<std::string, std::vector<at::Tensor>> by_layer;
  for (const auto& [name, site] : sites) {
    if (site.experts == 0) continue;
    const auto &before = old.global.adapters.at(name), &after = next.global.adapters.at(name);
    const auto g_a = (before.a - after.a).div_(divisor), g_b = (before.b - after.b).div_(divisor);
    next.global.extras[concat(name, kA)] = g_a;
    next.global.extras[concat(name, kB)] = g_b;
    by_layer[site.moe_layer].insert(by_layer[site.moe_layer].end(), {g_a, g_b});
  }
  for (const auto& [layer, tensors] : by_layer) next.memory[pseudo_grad_norm_of(layer)] = expert_norm_N(tensors);
}

AdapterState PseudoGradients::sent_in(const TensorMap& extras) {
  AdapterState sites;
  for (const auto& [name, g] : extras) {
    const auto site = name.substr(0, name.rfind('.'));
    if (name.ends_with(kA)) sites[site].a = g;
    if (name.ends_with(kB)) sites[site].b = g;
  }
  return sites;
}

void PseudoGradients::edit_gradients(const StepView& step) const {
  if (options_.pg_apply != PgApply::kAdamGrad) return;
  inject(step, [](const at::Tensor& theta, const at::Tensor& experts_N, const at::Tensor& g) {
    if (!theta.grad().defined()) theta.mutable_grad() = at::zeros_like(theta);
    theta.mutable_grad().index_add_(0, experts_N, g);
  });
  if (options_.pg_clip_mode == PgClipMode::kGlobalNorm)
    step.metrics.add("pg_clipped", clip_whole_gradient(step.setup, options_.pg_clip) ? 1 : 0);
}

void PseudoGradients::edit_parameters(const StepView& step) const {
  if (options_.pg_apply != PgApply::kDecoupledSgd) return;
  inject(step, [&](const at::Tensor& theta, const at::Tensor& experts_N, const at::Tensor& g) {
    theta.detach().index_add_(0, experts_N, g, -step.lr);
  });
}

/// Calls apply(theta, experts_N, share * clip(rho Gt)) for every adapter tensor of every layer's idle experts.
void PseudoGradients::inject(const StepView& step, const Apply& apply) const {
  const c10::NoGradGuard no_grad;
  const double scale = rho(step.download.extras.at(kRhoReference).item<double>(), step.view.client.top_k);
  for (const auto& [layer, stats] : step.micro_batches.front()) {
    const auto tensors = expert_tensors(step, layer);
    if (tensors.theta.empty()) continue;
    const auto share_E = idle_share_E(options_.pg_activity, step.micro_batches, layer);
    const auto experts_N = share_E.nonzero().squeeze(1);
    std::vector<at::Tensor> g;
    for (const auto& gt : tensors.pseudo_grad) g.push_back(gt.index_select(0, experts_N).mul_(scale));
    const auto clipped_N = clip(g, clip_limit(step, layer, tensors));
    const auto share_N = share_E.index_select(0, experts_N);
    for (size_t j = 0; j < g.size(); ++j) apply(tensors.theta[j], experts_N, g[j].mul_(per_expert(share_N, g[j])));
    report(step.metrics, expert_norm_N(g), clipped_N, share_E.numel());
  }
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

/// What rho Gt is clipped to: pg_clip, or that many times the median norm of the layer's experts that a token of the
/// step chose (R14): of their real gradients, or past AdamW of their own Gt, which is what the last round moved them
/// by.
double PseudoGradients::clip_limit(const StepView& step, const std::string& layer, const ExpertTensors& tensors) const {
  if (options_.pg_clip_mode != PgClipMode::kRelative) return options_.pg_clip;
  const auto used_E = idle_share_E(PgActivity::kStepUnion, step.micro_batches, layer).eq(0);
  const auto experts_N = used_E.nonzero().squeeze(1);
  std::vector<at::Tensor> measures;
  for (size_t j = 0; j < tensors.theta.size(); ++j) {
    const auto& real = options_.pg_apply == PgApply::kAdamGrad ? tensors.theta[j].grad() : tensors.pseudo_grad[j];
    if (real.defined()) measures.push_back(real.index_select(0, experts_N));
  }
  if (measures.empty() || experts_N.numel() == 0) return 0;
  return options_.pg_clip * expert_norm_N(measures).median().item<double>();
}

/// Per expert or per element (R14); the norm of the whole gradient is clipped when that is complete.
/// \return [N] whom it changed
at::Tensor PseudoGradients::clip(std::vector<at::Tensor>& g, double limit) const {
  switch (options_.pg_clip_mode) {
    case PgClipMode::kRelative:
    case PgClipMode::kPerExpertNorm:
      return clip_norms(g, limit);
    case PgClipMode::kElementwise:
      return clip_elements(g, limit);
    case PgClipMode::kGlobalNorm:
    case PgClipMode::kOff:
      return at::zeros({g[0].size(0)}, at::kBool);
  }
  fail(kInternal, "pg_clip_mode out of range");
}

/// Shares of a layer's experts that were idle and that got a pseudo-gradient other than zero, its norm, and the share
/// of those whose bound made it smaller.
void PseudoGradients::report(Metrics& metrics, const at::Tensor& norm_N, const at::Tensor& clipped_N,
                             int64_t num_experts) const {
  const auto got = norm_N.gt(0).sum().item<int64_t>();
  metrics.add("idle_share", static_cast<double>(norm_N.numel()) / static_cast<double>(num_experts));
  metrics.add("pg_share", static_cast<double>(got) / static_cast<double>(num_experts));
  if (got == 0) return;
  const auto weight = static_cast<double>(got);
  metrics.add("pg_norm", norm_N.sum().item<double>() / weight, weight);
  if (options_.pg_clip_mode != PgClipMode::kGlobalNorm)
    metrics.add("pg_clipped", clipped_N.sum().item<double>() / weight, weight);
}

}  // namespace evenkeel::ubsmoe
