/// \file  Limits the norm of the whole gradient of a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::train {

/// Multiplies the gradients of all parameters by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all
/// their numbers together. It equals torch.nn.utils.clip_grad_norm_ up to rounding: a norm that is not finite makes the
/// gradients not finite. Parameters without a gradient are left out.
void clip_gradient_norm(const std::vector<at::Tensor>& parameters, double max_norm,
                        const nn::StepArithmetic& arithmetic);

}  // namespace evenkeel::train
