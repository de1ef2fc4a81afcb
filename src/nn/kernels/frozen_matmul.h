/// \file  Products with a frozen weight, the one place that knows which arithmetic this machine runs fastest. No layer above knows
/// which path runs. Dimension names: M rows, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace evenkeel {

/// How a bfloat16 weight is multiplied with float32 activations. A float32 or float64 weight is always multiplied as it is.
enum class MatmulPath {
  kNative,  ///< activations rounded to bfloat16, the library's bfloat16 product, result widened
  kWiden,   ///< the weight widened to float32 panel by panel, float32 product
};
std::string_view to_string(MatmulPath path);

/// Chooses the path by timing both on this machine (about 0.1 s); called once when a run is created, then kept in its config.
MatmulPath probe_matmul_path();
/// Process-wide; set before the first forward. Default kNative.
void set_matmul_path(MatmulPath path);
MatmulPath matmul_path();

/// x W^T.  \param x [M, I] float32 or float64; \param w [O, I] frozen, any float dtype, contiguous; \return [M, O] in x's dtype.
at::Tensor frozen_matmul(const at::Tensor& x_MI, const at::Tensor& w_OI);
/// dy W: the input gradient of frozen_matmul. \param dy [M, O]; \return [M, I].
at::Tensor frozen_matmul_backward(const at::Tensor& dy_MO, const at::Tensor& w_OI);

}  // namespace evenkeel
