#include "train/adamw_by_operators.h"

#include <ATen/ATen.h>

namespace evenkeel::train {

void step_by_operators(const AdamWTensors& all, const OptimizerConfig& config, double lr) {
  if (all.parameters.empty()) return;
  at::_foreach_add_(all.steps, 1);
  at::_fused_adamw_(all.parameters, all.gradients, all.exp_avgs, all.exp_avg_sqs, {}, all.steps, lr, config.betas[0],
                    config.betas[1], config.weight_decay, config.eps, /*amsgrad=*/false, /*maximize=*/false);
}

/// Updates the active slices. Slices that are not active use factors that leave their numbers unchanged.
void step_by_operators(const AdamWSlices& stack, const OptimizerConfig& config, double lr) {
  const auto type = stack.parameter.scalar_type();
  std::vector<int64_t> of_slice(static_cast<size_t>(stack.parameter.dim()), 1);
  of_slice[0] = -1;
  const auto active_E = stack.active_E.to(at::kBool);
  const auto factor = [&](const at::Tensor& value_E, double idle) {
    return at::where(active_E, value_E, at::full_like(value_E, idle)).to(type).view(of_slice);
  };
  stack.steps_E.add_(active_E.to(stack.steps_E.scalar_type()));
  const auto count_E = stack.steps_E.to(at::kDouble), one_E = at::ones_like(count_E);
  const auto correction_E = [&](double beta) { return 1 - at::full_like(count_E, beta).pow(count_E); };
  const double beta1 = config.betas[0], beta2 = config.betas[1];
  stack.parameter.mul_(factor(one_E * (1 - lr * config.weight_decay), 1));
  stack.exp_avg.mul_(factor(one_E * beta1, 1)).addcmul_(stack.gradient, factor(one_E * (1 - beta1), 0));
  stack.exp_avg_sq.mul_(factor(one_E * beta2, 1)).addcmul_(stack.gradient.square(), factor(one_E * (1 - beta2), 0));
  const auto root = stack.exp_avg_sq.sqrt().div_(factor(correction_E(beta2).sqrt(), 1)).add_(config.eps);
  stack.parameter.sub_(stack.exp_avg.div(root).mul_(factor(lr / correction_E(beta1), 0)));
}

}  // namespace evenkeel::train
