/// \file  Normalisation over the last dimension. Statistics in float32 (or wider).
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/compute/compute.h"

namespace evenkeel {

/// w * x / sqrt(mean(x^2) + eps). \param x [T, D]; \param weight [D]. Source: Zhang and Sennrich 2019.
at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps, const Compute& compute = {});

/// Gradients of rms_norm, those that are wanted, for nodes that take it again on their way back.
/// \param dy, x, weight  contiguous, of one dtype
struct RmsNormGradients {
  at::Tensor dx_TD, dw_D;
};
RmsNormGradients rms_norm_backward(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& weight_D,
                                   double eps, bool dx_wanted, bool dw_wanted);

/// w * (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) + b. Source: Ba, Kiros and Hinton 2016.
/// \param x [T, D]; \param weight, bias [D], each may be undefined: none (OLMo's norm has neither).
at::Tensor layer_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, const at::Tensor& bias_D, double eps);

}  // namespace evenkeel
