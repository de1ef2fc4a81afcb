/// \file  Rotary embedding and causal attention over packed sequences. What generation adds to it is
/// nn/cached_attention.h. Dimension names: T tokens, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace evenkeel {

/// cos and sin of RoPE for `positions`: each [T, P], float32. Source: Su et al. 2021, the half-split layout of
/// GPT-NeoX.
struct RotaryTable {
  at::Tensor cos, sin;
};
RotaryTable rotary_table(const at::Tensor& positions_T, int64_t head_width, double theta);

/// \param x [T, H, P] -> [T, H, P]
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// Where each of B packed sequences begins, and where the last ends. \param offsets [B + 1]. \throws kShape unless they
/// rise to `tokens` (nothing is empty).
void check_offsets(std::span<const int64_t> offsets, int64_t tokens);

/// Causal attention within each sequence; query heads share key/value heads in groups of H / G. Scale 1/sqrt(P).
/// \param q [T, H, P], k, v [T, G, P]; offsets B + 1.
/// \return [T, H * P]
at::Tensor packed_attention(const at::Tensor& q_THP, const at::Tensor& k_TGP, const at::Tensor& v_TGP,
                            std::span<const int64_t> offsets);

}  // namespace evenkeel
