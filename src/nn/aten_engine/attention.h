/// \file  Implements nn/attention/attention.h with LibTorch's operators, for any device. In 16 bits on a GPU it uses
/// flash attention over packed sequences. Otherwise, and with a soft cap, sequences are padded to the longest one.
/// Dimension names: B sequences, R rows, T tokens, N queries, L and M padded tokens, H query heads, G key/value heads,
/// P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "nn/aten_engine/layout.h"
#include "nn/attention/attention.h"

namespace evenkeel::nn::aten {

/// Computes x cos + rotate_half(x) sin in float32 or wider. The first term is rounded before the second is added.
/// \param x_THP  [T, H, P], any float type \return [T, H, P] in the type of x
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// Returns flash attention's argument for a window: how many tokens before itself a token attends to; nullopt (no
/// limit) for window 0.
std::optional<int64_t> tokens_before(int64_t window);
/// Returns flash attention's argument for the tokens after itself: 0 with a window, else nullopt.
std::optional<int64_t> tokens_after(int64_t window);

/// Returns true if flash attention supports GPUs of a compute capability, as "8.0". An unknown one (empty) counts as
/// supported.
bool has_flash(std::string_view capability);
/// Returns true if flash attention supports the device, type and head width of `q`.
bool has_flash(const at::Tensor& q);

/// Computes softmax(c tanh(q k^T / (sqrt(P) c))) v for a soft cap c. It holds the scores of all pairs in memory.
/// Differentiable.
/// \param q_BHLP  [B, H, L, P] \param k_BHMP, v_BHMP  [B, H, M, P]
/// \param visible  bool, true where query l attends to key m; broadcasts to [B, H, L, M]
/// \return [B, H, L, P], of the type of v
at::Tensor capped_attention(const at::Tensor& q_BHLP, const at::Tensor& k_BHMP, const at::Tensor& v_BHMP,
                            const at::Tensor& visible, double soft_cap);

/// Computes nn::apply_steps() (nn/attention/attention.h): norm, clamp and rotation of heads. Differentiable.
at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps);

/// Applies the steps of queries and keys. If both have the same rotary table of `layout` and autograd is off, they are
/// rotated together, with half of the operators. \param q_NHP  [N, H, P] \param k_NGP  [N, G, P]
/// \return [N, H, P] and [N, G, P], which may be views of one tensor
std::pair<at::Tensor, at::Tensor> apply_steps_together(const at::Tensor& q_NHP, const at::Tensor& k_NGP,
                                                       const AttentionSteps& steps, const Layout& layout);

/// Computes nn::packed_attention(), differentiable in q, k and v.
/// \param q_RHP  [R, H, P] \param k_RGP, v_RGP  [R, G, P], in the type of q
/// \return [R, H P] in the type of q
at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            const Layout& layout, const AttentionSteps& steps = {});

}  // namespace evenkeel::nn::aten
