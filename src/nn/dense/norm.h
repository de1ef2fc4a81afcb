/// \file  Computes normalisations over the last dimension. Statistics are float32 or wider.
#pragma once

#include <ATen/core/Tensor.h>

namespace evenkeel::nn {

/// Computes w * x / sqrt(mean(x^2) + eps). \param x_TD  [T, D] \param weight_D  [D] \return [T, D]
/// \throws Error{kShape} if sizes disagree. Source: Zhang and Sennrich 2019.
at::Tensor rms_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);
/// Checks the sizes of rms_norm(). \throws Error{kShape} naming them
void check_norm_shapes(const at::Tensor& x_TD, const at::Tensor& weight_D);

/// The gradients of rms_norm().
struct RmsNormGradients {
  at::Tensor dx_TD, dw_D;
};
/// Computes the gradients of rms_norm(), for autograd nodes that contain a norm. Gradients that are not wanted are
/// undefined. \param dy_TD, x_TD, weight_D  contiguous, of one type
RmsNormGradients rms_norm_backward(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& weight_D,
                                   double eps, bool dx_wanted, bool dw_wanted);

/// Computes w * (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) + b.
/// \param x_TD  [T, D] \param weight_D, bias_D  [D]; undefined: 1 and 0, as in OLMo
/// \throws Error{kShape} if sizes disagree. Source: Ba, Kiros and Hinton 2016.
at::Tensor layer_norm(const at::Tensor& x_TD, const at::Tensor& weight_D, const at::Tensor& bias_D, double eps);

}  // namespace evenkeel::nn
