/// \file  RMSNorm by LibTorch's operators, on any device; statistics in float32 or wider.
#pragma once

#include <ATen/core/Tensor.h>

namespace evenkeel::aten {

/// \param x  [T, D], any float type; \param weight  [D], may get a gradient. \return [T, D] of x's type
at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);

}  // namespace evenkeel::aten
