/// \file  nn/attention/attention.h by LibTorch's operators, on any device: flash attention over packed sequences on a
/// GPU in 16 bits, else the library's attention over sequences padded to the longest. Dimension names: R rows, T
/// tokens, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/attention/aten_layout.h"
#include "nn/attention/attention.h"

namespace evenkeel::aten {

/// x cos + rotate_half(x) sin in float32 or wider, rounded once more between the two terms.
/// \param x  [T, H, P], any float type. \return the same type
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// Whether flash attention takes queries like these.
bool has_flash(const at::Tensor& q);

/// As evenkeel::apply_steps().
at::Tensor apply_steps(const at::Tensor& x_THP, const HeadSteps& steps);

/// As evenkeel::packed_attention(). \param q  [R, H, P]; k, v [R, G, P], all of one float type
/// \return [R, H P] of that type
at::Tensor packed_attention(const at::Tensor& q_RHP, const at::Tensor& k_RGP, const at::Tensor& v_RGP,
                            const Layout& layout, const AttentionSteps& steps = {});

}  // namespace evenkeel::aten
