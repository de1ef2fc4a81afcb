/// \file  Stacks parameters of equal sizes, so that a term of the loss that depends on the parameters of all layers
/// consists of few operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::nn {

/// Returns leaves[i].narrow(axis, begin, length) for all i as one tensor [n, ...], a differentiable copy. The backward
/// pass adds all gradients by one operator where they lie in one stack (nn/dense/gradients.h).
/// \param leaves  n >= 1 tensors of equal sizes \param axis  below 0: counted from the last
at::Tensor stacked_slices(at::TensorList leaves, int64_t axis, int64_t begin, int64_t length);

/// Returns the whole tensors as one tensor [n, ...], like stacked_slices().
at::Tensor stacked(at::TensorList leaves);

}  // namespace evenkeel::nn
