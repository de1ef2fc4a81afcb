/// \file  Computes the bidirectional attention of encoders over packed sequences. Dimension names: B sequences, T
/// tokens, H heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel::nn {

/// Computes softmax(q k^T / sqrt(P)) v within each sequence. Every token attends to all tokens of its sequence. It uses
/// LibTorch's attention without padding, on any device. Up to `most_at_once` adjacent sequences of the same length are
/// computed in one call, so sort sequences by length.
/// \param q_THP, k_THP, v_THP  [T, H, P] \param offsets  [B + 1], the first token of each sequence, then T
/// \return [T, H * P], of the type of q
/// \throws kShape when sizes disagree or a sequence is empty.
at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                          std::span<const int64_t> offsets, int64_t most_at_once = 1);

}  // namespace evenkeel::nn
