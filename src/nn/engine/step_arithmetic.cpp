#include "nn/engine/step_arithmetic.h"

#include <ATen/ATen.h>

namespace evenkeel::nn {

at::Tensor contiguous_gradient(const at::Tensor& parameter) {
  auto& gradient = parameter.mutable_grad();
  if (!gradient.is_contiguous()) gradient = gradient.contiguous();
  return gradient;
}

at::Tensor active_slices(AdamWState& state, const AdamWStep& step, size_t parameter) {
  if (parameter >= step.active.size() || !step.active[parameter].defined()) return {};
  auto& steps = state.steps[parameter];
  if (steps.dim() == 0) steps = steps.repeat({state.parameters[parameter].size(0)});
  return step.active[parameter];
}

}  // namespace evenkeel::nn
