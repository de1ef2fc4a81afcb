/// \file  Copies the values of many tensors with few operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace evenkeel::nn::aten {

/// Copies the values of from[i] to to[i], of equal size and type, with one operator per type.
void copy_values(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

}  // namespace evenkeel::nn::aten
