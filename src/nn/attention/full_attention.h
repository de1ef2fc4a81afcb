/// \file  Attention of encoders over packed sequences: every token sees every token of its sequence.
/// Dimension names: T tokens, H heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel {

/// softmax(q k^T / sqrt(P)) v within each sequence. \param q, k, v [T, H, P]; offsets B + 1. \return [T, H * P]
/// \throws kShape when sizes disagree or a sequence is empty.
at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                          std::span<const int64_t> offsets);

}  // namespace evenkeel
