/// \file  Cross-entropy over a large vocabulary without ever holding all logits.
/// Dimension names: N target positions, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"
#include "nn/dense/logits_memory.h"

namespace evenkeel {

/// A loss is a pair; only who reports it divides. `sum` is in the graph.
struct LossSum {
  at::Tensor sum;     ///< scalar float32 (float64 in tests), natural log
  int64_t count = 0;  ///< targets summed over
};

/// sum_n -log softmax(h_n W^T)[target_n], in chunks of rows; the gradient of the logits is formed in place.
/// \param hidden [N, D]; \param head [V, D], gets a gradient only if its values require one; \param targets [N] int64,
/// on the device of `hidden` or on a processor, where they are checked.
LossSum cross_entropy(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                      const Compute& compute = {});

/// The same of consecutive targets, counts[0] of them, counts[1] and so on, in one pass; sums need not get the same
/// gradient. \throws kInternal where a head that gets one has several sums
std::vector<LossSum> cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                                     std::span<const int64_t> counts, const Compute& compute = {});

/// Logits of rows of hidden states: float32 (float64 in tests). \return [N, V]
at::Tensor logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const Compute& compute = {});

/// Per position, without a graph. \return [N] log-probabilities of the targets.
at::Tensor target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                           const Compute& compute = {});

}  // namespace evenkeel
