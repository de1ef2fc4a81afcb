/// \file  nn/dense/linear.h by LibTorch's operators, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/compute/compute.h"

namespace evenkeel::aten {

/// What products are made in: `compute.inner`, or where that is kFloat the type of `x`.
at::ScalarType inner_type(const at::Tensor& x, const Compute& compute);

/// A pair of factors as a node takes it; empty tensors where there is none.
struct LinearFactors {
  at::Tensor a_RI, b_OR;
  double scaling = 1;
};

/// y = x W^T + scaling (x A^T) B^T + the same of a change of the base, which gets no gradient.
/// \param x  [T, I], any float type. \param w  [O, I]; gets a gradient if it requires one
/// \return [T, O] of `type`
at::Tensor linear(const at::Tensor& x_TI, const at::Tensor& w_OI, const LinearFactors& adapter,
                  const LinearFactors& change, at::ScalarType type);

}  // namespace evenkeel::aten
