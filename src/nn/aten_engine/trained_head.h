/// \file  Computes the cross-entropy with a trainable head, with LibTorch's operators, for any device. Dimension names:
/// N target positions, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

namespace evenkeel::nn::aten {

/// Computes the sum of -log softmax(h W^T)[target]. The hidden states and the head get gradients, which are computed
/// with the loss, so that no logits are kept.
/// \param targets_N  int64, on the device of `hidden_ND`
/// \param type  type of the matrix products with the head; the gradient of the head is summed in float32 or wider
/// \return [1], of the type of `hidden_ND`
at::Tensor trained_cross_entropy(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                                 at::ScalarType type, double soft_cap);

}  // namespace evenkeel::nn::aten
