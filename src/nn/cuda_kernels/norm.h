/// \file  RMSNorm with rotary positions, and of the residual stream, by CUDA kernels. The references are the operators
/// of nn/aten_engine/norm.cpp and attention.cpp, which round after each step; the kernels compute in float32 and round
/// once. Dimension names: R rows, D width, H heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "nn/attention/attention.h"

namespace evenkeel::nn::cuda {

/// Computes nn::apply_steps(). \return [R, H, P]; nothing where operators have to compute: they also clamp, and give
/// the weight of the norm a gradient
std::optional<at::Tensor> head_steps(const at::Tensor& x_RHP, const HeadSteps& steps);

/// The residual stream after a block, and its norm for the next one.
struct NormedSum {
  at::Tensor sum_RD;   ///< x + added, float32
  at::Tensor norm_RD;  ///< w sum / rms(sum), in the type of `added`
};
/// Adds the output of a block to the residual stream and normalises the sum.
/// \param x_RD  float32 \param added_RD  float32 or bfloat16 \param weight_D  gets no gradient
/// \return nothing where operators have to compute
std::optional<NormedSum> residual_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D,
                                       double eps);

}  // namespace evenkeel::nn::cuda
