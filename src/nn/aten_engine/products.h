/// \file  Multiplies one input with several weights. On a GPU, weights that are adjacent in one memory are multiplied
/// by one operator. Dimension names: T tokens, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace evenkeel::nn::aten {

/// Computes x W^T of each weight. On the CPU, where an operator costs no launch, each weight is multiplied separately.
/// \param x_TI  [T, I] \param weights  [O, I] each, in any float type \param contiguous  whether results must be
/// contiguous; otherwise they may be columns of one matrix
/// \return [T, O] each, in the type of x
std::vector<at::Tensor> products(const at::Tensor& x_TI, const std::vector<at::Tensor>& weights, bool contiguous);

}  // namespace evenkeel::nn::aten
