/// \file  A weight as it lies in memory, in the type it is stored in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::kernels {

/// A weight [out, in], row-major: float64, float32, float16, bfloat16, or int8 with a scale per row.
struct StoredMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t out = 0, in = 0;
  int64_t stride = 0;             ///< numbers from one row to the next
  const float* scales = nullptr;  ///< [out], int8 alone: row o stands for scales[o] * data[o]
  /// \param scales  of an int8 weight. \throws Error{kShape} unless it is a matrix without gaps
  static StoredMatrix of(const at::Tensor& w_OI, const at::Tensor& scales_O = {});
};

}  // namespace evenkeel::kernels
