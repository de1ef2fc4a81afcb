/// \file  Implements nn/attention/attention.h with LibTorch's operators, for any device. On GPUs in 16 bits it uses
/// flash attention over packed sequences, else the library's attention over sequences padded to the longest. Dimension
/// names: R rows, T tokens, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "nn/aten_engine/layout.h"
#include "nn/attention/attention.h"

namespace evenkeel::nn::aten {

/// Computes x cos + rotate_half(x) sin in float32 or wider. The first term is rounded before the second is added.
/// \param x_THP  [T, H, P], any float type \return [T, H, P] in the type of x
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// Returns flash attention's argument for a window: how many tokens before itself a token attends to; nothing for 0.
std::optional<int64_t> tokens_before(int64_t window);
/// Returns flash attention's argument for the tokens after itself: 0 with a window, else nothing.
std::optional<int64_t> tokens_after(int64_t window);

/// Returns true if flash attention supports the device, type and head width of `q`.
bool has_flash(const at::Tensor& q);

/// Computes softmax(c tanh(q k^T / (sqrt(P) c))) v for a soft cap c. Memory: the scores of all pairs. Differentiable.
/// \param q_BHLP  [B, H, L, P] \param k_BHMP, v_BHMP  [B, H, M, P]
/// \param visible  which of M tokens each of L attends to, of sizes that expand to [B, H, L, M]
at::Tensor capped_attention(const at::Tensor& q_BHLP, const at::Tensor& k_BHMP, const at::Tensor& v_BHMP,
                            const at::Tensor& visible, double soft_cap);

/// Computes nn::apply_steps() (nn/attention/attention.h): norm and rotation of queries or keys. Differentiable.
at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps);

/// Applies the steps of queries and keys. With one rotary table for both and without autograd, they are rotated
/// together, with half of the operators. \param q_NHP  [N, H, P] \param k_NGP  [N, G, P]
/// \return [N, H, P] and [N, G, P], which may be views of one tensor
std::pair<at::Tensor, at::Tensor> apply_steps_together(const at::Tensor& q_NHP, const at::Tensor& k_NGP,
                                                       const AttentionSteps& steps, const Layout& layout);

/// Computes nn::packed_attention(), differentiable in q, k and v. \param q_RHP  [R, H, P] \param k_RGP, v_RGP  [R, G,
/// P], in the type of q
/// \return [R, H P] in that type
at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            const Layout& layout, const AttentionSteps& steps = {});

}  // namespace evenkeel::nn::aten
