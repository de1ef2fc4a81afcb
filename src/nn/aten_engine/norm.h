/// \file  Implements RMSNorm with LibTorch's operators, for any device. Statistics are float32 or wider.
#pragma once

#include <ATen/core/Tensor.h>

namespace evenkeel::nn::aten {

/// Computes w * x / sqrt(mean(x^2) + eps).
/// \param x_TD  [T, D], any float type \param weight_D  [D]; may require a gradient \return [T, D] in the type of x
at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);

}  // namespace evenkeel::nn::aten
