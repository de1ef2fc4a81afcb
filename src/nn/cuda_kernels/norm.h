/// \file  CUDA kernels that compute RMSNorm and rotation of heads, and RMSNorm of the residual stream. The references
/// are the operators of nn/aten_engine/norm.cpp and attention.cpp, which round after each step; the kernels compute in
/// float32 and round once. Dimension names: R rows, D width, H heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "nn/attention/attention.h"
#include "nn/engine/pass.h"

namespace evenkeel::nn::cuda {

/// Computes nn::apply_steps(). \return [R, H, P] in the type of x; nullopt: use LibTorch's operators, because
/// device_for() is null (kernels.h), sizes disagree, there is a clip, or the weight of the norm needs a gradient
std::optional<at::Tensor> head_steps(const at::Tensor& x_RHP, const HeadSteps& steps);

/// Computes nn::Pass::add_norm(). The sum is float32. \param x_RD  float32 \param added_RD  float32 or bfloat16
/// \param weight_D  gets no gradient \param type  type of the norm: float32, or the type of `added_RD`
/// \return nullopt: use LibTorch's operators, because device_for() is null, a type differs, or the weight needs a
/// gradient
std::optional<NormedSum> residual_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D,
                                       double eps, at::ScalarType type);

}  // namespace evenkeel::nn::cuda
