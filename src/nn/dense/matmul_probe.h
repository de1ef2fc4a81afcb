/// \file  Which kernel is fastest for which product on this machine, by measurement: processors differ, and their names
/// do not tell.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "nn/compute/matmul_table.h"

namespace evenkeel {

/// One cell of the table: GFLOP/s of each MatmulKernel on weights that are not in cache, medians.
struct MeasuredMatmul {
  static constexpr size_t kKernels = names(MatmulKernel{}).size();

  GemmContext place{};
  Direction direction{};
  int64_t rows = 0;
  std::array<double, kKernels> gflops{};  ///< by kernel; 0: not tried, as processor or format lack it
  /// The first of own, dot, tile, native, widen that none after it beats by a tenth: less may be noise, own is exact,
  /// and bits of the last two depend on the number of threads.
  MatmulKernel chosen() const;
};

/// All cells, made as steps make them: experts of [1024, 2048], each by one of the threads at::get_num_threads() says,
/// side by side; linears of [2048, 2048] by all of them; a bucket's rows are its typical ones. Takes some seconds, more
/// where the machine is busy.
/// \param stored  what the weights are: at::kBFloat16, or at::kChar for int8 with a scale per row
std::vector<MeasuredMatmul> measure_matmuls(at::ScalarType stored = at::kBFloat16);

/// What every cell chooses: the fastest kernel of each, but for near ties.
MatmulTable fastest_kernels(const std::vector<MeasuredMatmul>& measured);

/// Weights of fewer numbers stay in a cache and gain nothing from a choice: models without a larger one take kOwn.
constexpr int64_t kMinMeasuredWeight = int64_t{1} << 20;

}  // namespace evenkeel
