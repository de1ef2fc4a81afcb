/// \file  Implements nn/dense/linear.h with LibTorch's operators, for any device.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/compute/compute.h"

namespace evenkeel::nn::aten {

/// Returns the type of the matrix products: `compute.inner`, or the type of `x` if `compute.inner` is kFloat.
at::ScalarType inner_type(const at::Tensor& x, const Compute& compute);

/// A pair of LoRA factors. Empty tensors: no factors.
struct LinearFactors {
  at::Tensor a_RI, b_OR;
  double scaling = 1;
};

/// Computes y = x W^T + scaling (x A^T) B^T, plus the term of a change of the base, which gets no gradient.
/// \param x_TI  [T, I], any float type \param w_OI  [O, I]; gets a gradient if it requires one
/// \param type  of the products \return [T, O] in `type`
at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const LinearFactors& adapter,
                  const LinearFactors& change, at::ScalarType type);

}  // namespace evenkeel::nn::aten
