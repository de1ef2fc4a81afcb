/// \file  Defines a frozen weight in its stored type, and its two matrix products. Dimension names: T rows, I in, O
/// out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/compute/matmul_table.h"

namespace evenkeel::nn {

/// A weight [out, in] in float32, bfloat16, float16 (float64 in tests), or int8 with one scale per row. The value of an
/// int8 element is scales[o] * values[o, i].
struct FrozenWeight {
  at::Tensor values_OI{};
  at::Tensor scales_O{};  ///< float32, with int8 values only

  FrozenWeight() = default;
  FrozenWeight(at::Tensor values, at::Tensor scales = {})  // NOLINT(google-explicit-constructor)
      : values_OI(std::move(values)), scales_O(std::move(scales)) {}

  int64_t out() const { return values_OI.size(0); }
  int64_t in() const { return values_OI.size(1); }
  /// Returns the size of values and scales in bytes.
  int64_t bytes() const;
  /// Returns a copy in `dtype`, with scales applied. Use it only in tests and to read single rows.
  at::Tensor widened(at::ScalarType dtype) const;
};

/// Checks that the weight of a linear layer fits its input x. \throws Error{kShape} naming the sizes
void check_linear_shapes(const at::Tensor& x_TI, const at::Tensor& w_OI);
/// Checks that LoRA factors a [r, in] and b [out, r] fit a weight [out, in]. \throws Error{kShape} naming all sizes
void check_factor_shapes(const at::Tensor& a, const at::Tensor& b, const at::Tensor& w_OI);

/// Quantises a weight to int8 with one scale per row: scales[o] = max_i |w[o, i]| / 127. Values are rounded to the
/// nearest, ties to even. A row of zeros has scale 0. \param w_OI  [O, I], any float type
FrozenWeight quantized(const at::Tensor& w_OI);

/// Computes x W^T. \param x_TI  [T, I], float32 (float64 in tests), contiguous
/// \param products  which kernel computes the matrix product; default: kFp32Exact \return [T, O] in the type of x
at::Tensor matmul_nt(const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products = {});
/// Computes x W^T and writes it to `out` [T, O], of the type of x.
void matmul_nt_out(at::Tensor& out_TO, const at::Tensor& x_TI, const FrozenWeight& w, const MatmulTable& products);
/// Computes dY W. \param dy_TO  [T, O], contiguous \param products  as in matmul_nt() \return [T, I] in the type of dY
at::Tensor matmul_nn(const at::Tensor& dy_TO, const FrozenWeight& w, const MatmulTable& products = {});

}  // namespace evenkeel::nn
