/// \file  A frozen weight in the form it is stored in, and its two products: what experts, projections, dense blocks
/// and heads all multiply with. Dimension names: T rows, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/compute/matmul_table.h"

namespace evenkeel {

/// [out, in]: float32, bfloat16, float16 (float64 in tests), or int8 with one scale per row:
/// w[o, i] = scales[o] * values[o, i].
struct FrozenWeight {
  at::Tensor values_OI{};
  at::Tensor scales_O{};  ///< float32, with int8 values only

  FrozenWeight() = default;
  FrozenWeight(at::Tensor values, at::Tensor scales = {})  // NOLINT(google-explicit-constructor)
      : values_OI(std::move(values)), scales_O(std::move(scales)) {}

  int64_t out() const { return values_OI.size(0); }
  int64_t in() const { return values_OI.size(1); }
  int64_t bytes() const;
  /// The same numbers in `dtype`, a copy: for tests, and for what reads single rows.
  at::Tensor widened(at::ScalarType dtype) const;
};

/// Row-scaled int8: scales[o] = max_i |w[o, i]| / 127, values rounded to the nearest, ties to even; a row of zeros has
/// scale 0. \param w  [O, I], any float type
FrozenWeight quantized(const at::Tensor& w_OI);

/// x W^T. \param x  [T, I] float32 (float64 in tests), contiguous. \return [T, O] of x's type
at::Tensor matmul_nt(const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products = {});
/// The same into `out` [T, O].
void matmul_nt_out(at::Tensor& out_TO, const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products);
/// dY W. \param dy  [T, O], contiguous. \return [T, I]
at::Tensor matmul_nn(const at::Tensor& dy_TO, const FrozenWeight& w, const MatmulTable& products = {});

}  // namespace evenkeel
