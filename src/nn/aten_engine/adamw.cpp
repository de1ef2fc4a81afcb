#include "nn/aten_engine/adamw.h"

#include <ATen/ATen.h>

#include <limits>
#include <vector>

namespace evenkeel::nn::aten {
namespace {

/// Lists parameters with their gradients, moments and step counts, in the same order.
struct AdamWTensors {
  std::vector<at::Tensor> parameters{}, gradients{}, exp_avgs{}, exp_avg_sqs{}, steps{};
};

/// Holds a stacked parameter. A step updates the slices [i] for which active_E[i] is true and leaves the others
/// unchanged.
struct AdamWSlices {
  at::Tensor parameter, gradient, exp_avg, exp_avg_sq;  // [E, ...]
  at::Tensor steps_E, active_E;                         // float32, bool
};

/// Takes one step for all parameters.
void step_whole(const AdamWTensors& all, const AdamWStep& step) {
  if (all.parameters.empty()) return;
  at::_foreach_add_(all.steps, 1);
  at::_fused_adamw_(all.parameters, all.gradients, all.exp_avgs, all.exp_avg_sqs, {}, all.steps, step.lr, step.betas[0],
                    step.betas[1], step.weight_decay, step.eps, /*amsgrad=*/false,
                    /*maximize=*/false);
}

/// The factors of a step by slice, [N] float64. Idle slices have factors that leave their numbers unchanged.
struct SliceFactors {
  at::Tensor decay_N;            // of the parameter
  at::Tensor first_N, second_N;  // weights of the gradient and its square in the moments
  at::Tensor slope_N, offset_N;  // the step is exp_avg / (offset + slope sqrt(exp_avg_sq))
};

SliceFactors factors_of(const at::Tensor& active_N, const at::Tensor& count_N, const AdamWStep& step) {
  const auto is_active_N = active_N.to(at::kDouble);
  const auto correction_N = [&](double beta) { return at::rsub(at::pow(beta, count_N), 1); };
  const auto first_N = correction_N(step.betas[0]), second_N = correction_N(step.betas[1]).sqrt_();
  return {at::rsub(is_active_N * (step.lr * step.weight_decay), 1), is_active_N * (1 - step.betas[0]),
          is_active_N * (1 - step.betas[1]), at::where(active_N, first_N / (second_N * step.lr), 0.0),
          at::where(active_N, first_N * (step.eps / step.lr), std::numeric_limits<double>::infinity())};
}

/// \param begin  the place of the stack's first slice in the factors
void step_stack(const AdamWSlices& stack, const SliceFactors& factors, int64_t begin) {
  std::vector<int64_t> of_slice(static_cast<size_t>(stack.parameter.dim()), 1);
  of_slice[0] = -1;
  const auto own = [&](const at::Tensor& factor_N) {
    return factor_N.narrow(0, begin, stack.parameter.size(0)).view(of_slice);
  };
  stack.parameter.mul_(own(factors.decay_N));
  stack.exp_avg.lerp_(stack.gradient, own(factors.first_N));
  stack.exp_avg_sq.lerp_(stack.gradient.square(), own(factors.second_N));
  const auto root = at::addcmul(own(factors.offset_N), stack.exp_avg_sq.sqrt(), own(factors.slope_N));
  stack.parameter.addcdiv_(stack.exp_avg, root, -1);
}

/// Counts a step for the active slices of all stacks. \return the counts [N] float64
at::Tensor count_step(const std::vector<AdamWSlices>& stacks, const at::Tensor& active_N) {
  std::vector<at::Tensor> steps;
  std::vector<int64_t> sizes;
  for (const auto& stack : stacks) {
    steps.push_back(stack.steps_E);
    sizes.push_back(stack.steps_E.size(0));
  }
  const auto count_N = at::cat(steps) + active_N;
  at::_foreach_copy_(steps, count_N.split_with_sizes(sizes));
  return count_N.to(at::kDouble);
}

/// Takes one step for the active slices of stacked parameters of one float type. The factors of all slices are computed
/// together.
void step_slices(const std::vector<AdamWSlices>& stacks, const AdamWStep& step) {
  if (stacks.empty()) return;
  std::vector<at::Tensor> active;
  for (const auto& stack : stacks) active.push_back(stack.active_E.to(at::kBool));
  const auto active_N = at::cat(active);
  auto factors = factors_of(active_N, count_step(stacks, active_N), step);
  for (auto* factor_N : {&factors.decay_N, &factors.first_N, &factors.second_N, &factors.slope_N, &factors.offset_N})
    *factor_N = factor_N->to(stacks.front().parameter.scalar_type());
  int64_t begin = 0;
  for (const auto& stack : stacks) {
    step_stack(stack, factors, begin);
    begin += stack.steps_E.size(0);
  }
}

}  // namespace

void adamw(AdamWState& state, const AdamWStep& step) {
  AdamWTensors whole;
  std::vector<AdamWSlices> stacks;
  std::vector<at::Tensor> gradients;
  for (size_t p = 0; p < state.parameters.size(); ++p) {
    if (!state.parameters[p].grad().defined()) continue;
    const auto parameter = state.parameters[p].detach(), gradient = contiguous_gradient(state.parameters[p]);
    gradients.push_back(gradient);
    const auto active_E = active_slices(state, step, p);
    if (state.steps[p].dim() == 0) {
      whole.parameters.push_back(parameter), whole.gradients.push_back(gradient), whole.steps.push_back(state.steps[p]);
      whole.exp_avgs.push_back(state.exp_avgs[p]), whole.exp_avg_sqs.push_back(state.exp_avg_sqs[p]);
    } else {
      stacks.push_back({parameter, gradient, state.exp_avgs[p], state.exp_avg_sqs[p], state.steps[p],
                        active_E.defined() ? active_E : at::ones_like(state.steps[p])});
    }
  }
  step_slices(stacks, step);
  step_whole(whole, step);
  if (step.zero_gradients && !gradients.empty()) at::_foreach_zero_(gradients);
}

}  // namespace evenkeel::nn::aten
