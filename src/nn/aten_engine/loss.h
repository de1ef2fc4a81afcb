/// \file  Implements nn/dense/loss.h with LibTorch's operators, for any device. The head is frozen;
/// nn/aten_engine/trained_head.h trains one. Dimension names: N target positions, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace evenkeel::nn::aten {

/// Computes h W^T with operands in `type`. Differentiable with respect to h. \return [N, V], float32 or wider
at::Tensor logits(const at::Tensor& hidden_ND, const at::Tensor& head_VD, at::ScalarType type);

/// Computes one sum of -log softmax(h W^T)[target] for each group of targets; group i has counts[i] targets.
/// \param targets_N  int64, on the device of `hidden_ND` \return one number per group, [groups], float32 or wider
at::Tensor cross_entropies(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           const std::vector<int64_t>& counts, at::ScalarType type, double soft_cap = 0);

/// Computes the log-probability of each target, without a gradient. \return [N], on the device of `hidden_ND`
at::Tensor target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           at::ScalarType type, double soft_cap = 0);

}  // namespace evenkeel::nn::aten
