/// \file  Defines a view of a weight matrix in the type in which it is stored.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::nn::kernels {

/// A row-major matrix [out, in] of float64, float32, float16, bfloat16, or int8 with one scale per row. Borrows its
/// memory, which must outlive it.
struct StoredMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t out = 0, in = 0;
  int64_t stride = 0;             ///< distance between the beginnings of two rows, in elements
  const float* scales = nullptr;  ///< int8 only, [out]: the value of element (o, i) is scales[o] * data[o, i]

  /// Returns a view of `w` [out, in]. \param scales_O  float32 [out]; required for int8, ignored for other types
  /// \throws Error{kShape} if `w` is not a contiguous matrix, or if the scales of an int8 weight are missing
  static StoredMatrix of(const at::Tensor& w_OI, const at::Tensor& scales_O = {});
};

}  // namespace evenkeel::nn::kernels
