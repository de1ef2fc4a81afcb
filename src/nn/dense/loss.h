/// \file  Computes the cross-entropy over a large vocabulary. Logits are computed in chunks and are never all in
/// memory. Dimension names: N target positions, D hidden, V vocabulary, P sums.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/compute/matmul_table.h"
#include "nn/dense/frozen_weight.h"
#include "nn/dense/logits_memory.h"

namespace evenkeel::nn {

// A soft cap c above 0 replaces each logit z by c tanh(z / c); 0 is no cap. Source: Gemma 2 (Gemma team 2024).
// `products` selects the kernel of each matrix product; default: kFp32Exact.

/// Returns cap tanh(logits / cap), or the logits if `soft_cap` is 0. Differentiable. On any device.
at::Tensor soft_capped(const at::Tensor& logits, double soft_cap);

/// A summed loss and the number of its targets. The caller computes the mean, sum / count.
struct LossSum {
  at::Tensor sum;     ///< scalar float32 (float64 in tests), natural logarithm, differentiable
  int64_t count = 0;  ///< number of targets in the sum
};

/// Computes the sum over n of -log softmax(h_n W^T)[target_n]. The gradient of the logits overwrites the logits in
/// memory.
/// \param hidden_ND  [N, D] \param head  [V, D]; gets a gradient only if its values require one
/// \param targets_N  [N] int64
/// \throws Error{kShape} if sizes disagree or a target is not in the vocabulary
LossSum cross_entropy(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                      const MatmulTable& products = {}, double soft_cap = 0);

/// Computes one sum for each of several consecutive groups of targets in one pass. Group i has counts[i] targets.
/// backward() may pass a different gradient to each sum.
/// \throws kShape as cross_entropy(); kInternal if the head requires a gradient and there are several sums
std::vector<LossSum> cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                                     std::span<const int64_t> counts, const MatmulTable& products = {},
                                     double soft_cap = 0);

/// Checks the operands of a loss. Targets on a device other than the CPU are not read.
/// \throws Error{kShape} if sizes disagree or a target is not in the vocabulary
void check_targets(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N);
/// Returns whether the head gets a gradient. \throws kInternal if it does and there are several sums
bool trains_head(const FrozenWeight& head, std::span<const int64_t> counts);
/// Pairs each of the P sums with the number of its targets.
std::vector<LossSum> loss_sums(const at::Tensor& sums_P, std::span<const int64_t> counts);

/// Computes h W^T for all rows at once. \return [N, V], float32 (float64 in tests)
at::Tensor logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const MatmulTable& products = {},
                  double soft_cap = 0);

/// Computes the log-probability of each target, without a gradient. \return [N], in the type of `hidden_ND` \throws
/// kShape as cross_entropy()
at::Tensor target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                           const MatmulTable& products = {}, double soft_cap = 0);

}  // namespace evenkeel::nn
