/// \file  Computes rotary embeddings and causal attention over packed sequences. nn/attention/cached_attention.h is the
/// counterpart for generation. Dimension names: T tokens, R rows, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

#include "nn/attention/rotary.h"

namespace evenkeel::nn {

/// Rotates the heads of each token. \param x_THP  [T, H, P] \return [T, H, P] \throws kShape if sizes disagree
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// The per-token operations on heads before attention, in this order. Empty members are skipped.
struct HeadSteps {
  at::Tensor norm{};             ///< weight of an RMSNorm: [H P] over all heads, or [P] over each head
  double norm_eps = 0;           ///< epsilon of the norm
  std::optional<double> clip{};  ///< clamps to [-clip, clip]
  RotaryTable rotary{};          ///< RoPE at the positions of the tokens
};
/// The steps of queries, keys and values, and the settings of the attention scores.
struct AttentionSteps {
  HeadSteps q{}, k{}, v{};
  int64_t window = 0;   ///< how many tokens a token attends to, itself included; 0: all up to itself
  double soft_cap = 0;  ///< c above 0: each score s is replaced by c tanh(s / c). Source: Gemma 2 (Gemma team 2024)
};

/// Applies the steps. \param x_THP  [T, H, P] \return [T, H, P] \throws kShape if the norm or the table has other sizes
at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps);

/// Checks the offsets of B packed sequences. \param offsets  [B + 1], the first token of each sequence, then `tokens`
/// \throws kShape unless they begin at 0, increase strictly, and end at `tokens`
void check_offsets(std::span<const int64_t> offsets, int64_t tokens);

/// Computes causal attention within each sequence, with scale 1/sqrt(P). H / G query heads share a key/value head.
/// Saved for backward: q, k, v, the output, and logsumexp [R, H]. The steps are recomputed in the backward pass.
/// \param q_RHP  [R, H, P], float32 (float64 in tests) \param k_RGP, v_RGP  [R, G, P], of the type of q
/// \param offsets  [B + 1], see check_offsets()
/// \param steps  applied to q, k and v first. The weights of their norms get gradients if they require them
/// (pre-training)
/// \param rows_T  the row of each token (data/example.h); undefined: token t has row t, R = T
/// \return [R, H * P], of the type of q \throws kShape if sizes disagree
at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            std::span<const int64_t> offsets, const AttentionSteps& steps = {},
                            const at::Tensor& rows_T = {});

}  // namespace evenkeel::nn
