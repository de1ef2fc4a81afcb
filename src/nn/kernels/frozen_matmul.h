/// \file  Products with a frozen weight, and the choice of arithmetic for weights stored in 16 bits. Processors differ
/// in which is faster, so the choice is made once per run by measuring (probe_matmul_path) or by the caller, never by
/// processor name. Dimension names: T rows, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "nn/matmul_path.h"

namespace evenkeel {

/// One measured row count: GFLOP/s of x W^T and dY W on weights that are not in cache.
struct ProbeRow {
  int64_t rows = 0;
  double widen_forward = 0, widen_backward = 0, native_forward = 0, native_backward = 0;
};
/// Measures both paths at row counts from 1 to 512; about a second.
std::vector<ProbeRow> measure_matmul_paths();
/// The path that takes less time over those row counts.
MatmulPath probe_matmul_path();

namespace kernels {

/// x W^T, [T, O], in x's dtype.
at::Tensor frozen_matmul(const at::Tensor& x_TI, const at::Tensor& w_OI, MatmulPath path = MatmulPath::kWiden);
/// dY W, [T, I], in dY's dtype.
at::Tensor frozen_matmul_backward(const at::Tensor& dy_TO, const at::Tensor& w_OI,
                                  MatmulPath path = MatmulPath::kWiden);

/// The type in which the product of x with w is written: bfloat16 where it takes the native path, else x's.
at::ScalarType product_dtype(const at::Tensor& x_TI, const at::Tensor& w_OI, MatmulPath path);
/// x W^T into `out` [T, O] of product_dtype, without a conversion after it.
void frozen_matmul_out(at::Tensor& out_TO, const at::Tensor& x_TI, const at::Tensor& w_OI);

/// True when `w` takes the bfloat16 product: a bfloat16 weight of some size under kNative. Small weights are always
/// widened.
bool takes_native_path(const at::Tensor& w_OI, MatmulPath path);

}  // namespace kernels
}  // namespace evenkeel
