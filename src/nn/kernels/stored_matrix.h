/// \file  A weight as it lies in memory, in the type it is stored in.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "nn/matmul_path.h"

namespace evenkeel::kernels {

/// A weight [out, in], row-major: float64, float32, float16, bfloat16, or int8 with a scale per row.
struct StoredMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t out = 0, in = 0;
  bool native = false;            ///< takes the bfloat16 product (takes_native_path)
  int64_t stride = 0;             ///< numbers from one row to the next
  const float* scales = nullptr;  ///< [out], int8 alone: row o stands for scales[o] * data[o]
  static StoredMatrix of(const at::Tensor& w_OI, MatmulPath path);
};

}  // namespace evenkeel::kernels
