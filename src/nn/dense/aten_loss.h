/// \file  nn/dense/loss.h by LibTorch's operators, on any device. The head is frozen. Dimension names: N target
/// positions, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "nn/compute/compute.h"

namespace evenkeel::aten {

/// Logits, in float32 or wider, from products of `type`. \return [N, V]
at::Tensor logits(const at::Tensor& hidden_ND, const at::Tensor& head_VD, at::ScalarType type);

/// Sums of -log softmax(h W^T)[target], one for each of `counts`. \param targets  int64, on the device of `hidden`
/// \return [counts]
at::Tensor cross_entropies(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           const std::vector<int64_t>& counts, at::ScalarType type);

/// Log-probabilities of the targets, without a graph. \return [N] on the device of `hidden`
at::Tensor target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           at::ScalarType type);

}  // namespace evenkeel::aten
