/// \file  Attention of new tokens to all that is cached of their sequences (nn/attention/kv_cache.h). Per head one
/// matrix product for the queries that meet the same rows, so that a beginning that many sequences share is read once
/// for all of them. No gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "nn/attention/kv_cache.h"

namespace evenkeel {

/// Fills the rows that KvCache::extend() appended. \param k, v [T, G, P], sequence after sequence as `offsets` [B + 1]
/// say
void store_keys(const at::Tensor& k_TGP, const at::Tensor& v_TGP, std::span<const int64_t> offsets,
                const KvCache& cache, int64_t layer);

/// softmax(q K^T / sqrt(P)) V of the last tokens of each sequence, over its whole cached past and itself; query heads
/// share key/value heads in groups of H / G. \param q [N, H, P], contiguous: rows offsets[b] to offsets[b + 1] are the
/// queries of the last positions of sequence b. \return [N, H * P]
at::Tensor cached_attention(const at::Tensor& q_NHP, std::span<const int64_t> offsets, const KvCache& cache,
                            int64_t layer);

}  // namespace evenkeel
