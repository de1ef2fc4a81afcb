/// \file  Rotary embedding and causal attention over packed sequences. What generation adds to it is
/// nn/attention/cached_attention.h. Dimension names: T tokens, R rows, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
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

/// What is done with the heads of each token before tokens meet, in this order; what is left out is not done.
struct HeadSteps {
  at::Tensor norm{};             ///< weight of an RMSNorm: [H P] over all heads together, [P] over each head
  double norm_eps = 0;           ///< of that norm
  std::optional<double> clip{};  ///< to [-clip, clip]
  RotaryTable rotary{};          ///< of the tokens' positions
};
struct AttentionSteps {
  HeadSteps q{}, k{}, v{};
};

/// \param x [T, H, P] -> [T, H, P]. \throws kShape for a norm of another width, a table of other rows
at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps);

/// Where each of B packed sequences begins, and where the last ends. \param offsets [B + 1]. \throws kShape unless they
/// rise to `tokens` (nothing is empty).
void check_offsets(std::span<const int64_t> offsets, int64_t tokens);

/// Causal attention within each sequence; query heads share key/value heads in groups of H / G. Scale 1/sqrt(P).
/// Kept for backward: q, k, v as they are given, the output and [R, H]; the steps are taken again there.
/// \param q [R, H, P], k, v [R, G, P]; offsets B + 1, the last is T.
/// \param steps  taken first; their norms' weights get gradients if they require them (pre-training)
/// \param rows_T  each token's row (data/example.h); undefined: one of its own, R = T
/// \return [R, H * P]
at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            std::span<const int64_t> offsets, const AttentionSteps& steps = {},
                            const at::Tensor& rows_T = {});

}  // namespace evenkeel
