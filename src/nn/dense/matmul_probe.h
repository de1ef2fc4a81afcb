/// \file  Measures which kernel is fastest for which matrix product on this machine. Processors differ, and their names
/// do not determine the answer.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "nn/compute/matmul_table.h"

namespace evenkeel::nn {

/// The measurement of one cell of a MatmulTable: a context, a direction and a range of row counts.
struct MeasuredMatmul {
  static constexpr size_t kKernels = names(MatmulKernel{}).size();

  GemmContext context{};
  Direction direction{};
  int64_t rows = 0;                       ///< rows of activations
  std::array<double, kKernels> gflops{};  ///< median GFLOP/s by kernel, on weights outside the cache; 0: not supported
  /// Returns the kernel to use. Kernels are compared in the order kFp32Exact, kBf16Dot, kBf16Tile, kBf16Vendor,
  /// kUpcast. A later kernel is chosen only if it is more than 10 % faster, because smaller differences may be noise.
  /// The first kernel does not round activations, and the bits of the last two depend on the number of threads.
  MatmulKernel chosen() const;
};

/// Measures all cells. The weights of experts are [1024, 2048]; experts run in parallel, one thread each. The weights
/// of linear layers are [2048, 2048] and use all threads. Each range of row counts is measured with its typical number
/// of rows. The measurement takes some seconds.
/// \param stored  type of the weights: at::kBFloat16, or at::kChar for int8 with one scale per row
std::vector<MeasuredMatmul> measure_matmuls(at::ScalarType stored = at::kBFloat16);

/// Returns the table of the chosen() kernels.
MatmulTable fastest_kernels(const std::vector<MeasuredMatmul>& measured);

/// The smallest weight, in elements, for which kernels are measured. Smaller weights stay in a cache and gain nothing.
/// A model without a weight of this size uses kFp32Exact.
constexpr int64_t kMinMeasuredWeight = int64_t{1} << 20;

}  // namespace evenkeel::nn
