/// \file  Computes attention of new tokens to the cached keys and values of their sequences (nn/attention/kv_cache.h).
/// All queries that attend to the same cached rows are computed in one matrix product per head, so a prefix that many
/// sequences share is read once. There are no gradients. Dimension names: B sequences, T new tokens, N queries, H query
/// heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "nn/attention/kv_cache.h"

namespace evenkeel::nn {

/// Writes keys and values to the rows that KvCache::extend() appended.
/// \param k_TGP, v_TGP  [T, G, P], contiguous, one sequence after the other
/// \param offsets  [B + 1], as given to extend()
/// \throws kShape if the types disagree
void store_keys(const at::Tensor& k_TGP, const at::Tensor& v_TGP, std::span<const int64_t> offsets,
                const KvCache& cache, int64_t layer);

/// Computes softmax(q K^T / sqrt(P)) V for the last tokens of each sequence. A query attends to all cached tokens up to
/// itself, or to the last `window` of them if that is above 0. H / G query heads share a key/value head.
/// \param soft_cap  as AttentionSteps::soft_cap
/// \param q_NHP  [N, H, P], contiguous; rows offsets[b] to offsets[b + 1] - 1 are the last positions of sequence b
/// \return [N, H * P], of the type of q \throws kShape if the types disagree
at::Tensor cached_attention(const at::Tensor& q_NHP, std::span<const int64_t> offsets, const KvCache& cache,
                            int64_t layer, int64_t window = 0, double soft_cap = 0);

}  // namespace evenkeel::nn
