/// \file  Computes distances between tensors. The bits of a result do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

namespace evenkeel::lora {

/// Returns the values in the type and order in which squared_distance() reads them: float64 as it is, else float32,
/// contiguous. If a tensor is compared several times, convert it once; the distances stay the same to the bit. A tensor
/// that has this form already is returned without a copy.
at::Tensor comparable(const at::Tensor& x);

/// Returns sum_i (x_i - y_i)^2, in float64. The values are summed in blocks of fixed size, whose sums are added in
/// order.
/// \param x  floating point, of any shape
/// \param y  of the same shape, of any floating-point type; undefined: zeros
/// \return   NaN or infinity when a value is not finite
/// \throws kShape when the shapes differ
/// Cost: one read of both, and a copy of one that is not comparable().
double squared_distance(const at::Tensor& x, const at::Tensor& y);

}  // namespace evenkeel::lora
