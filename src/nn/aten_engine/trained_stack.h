/// \file  Passes the gradient of a stack of expert weights on to the matrices that the stack consists of. Full-weight
/// training trains these matrices, one parameter each, as checkpoints name them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/dense/frozen_weight.h"

namespace evenkeel::nn::aten {

/// Matrices in a stack: the matrix of expert e is rows [first_row, first_row + rows) of stack[e]. Borrows the weights.
struct StackRows {
  const std::vector<FrozenWeight>& matrices;  ///< one per expert, [rows, I]
  int64_t first_row = 0;
};

/// Returns `stack_ERI` with a gradient that goes to `parts`, if one of their matrices requires one. Otherwise returns
/// it unchanged. REQUIRES that the matrices are views of the stack.
at::Tensor trained_stack(const at::Tensor& stack_ERI, const std::vector<StackRows>& parts);

}  // namespace evenkeel::nn::aten
