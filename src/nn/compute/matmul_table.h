/// \file  Selects the kernel for each matrix product with a frozen weight. Which kernel is fastest depends on the
/// processor and on the shape. A run measures this once, when it is created (nn/dense/matmul_probe.h), or reads the
/// table from its config. The table is part of Compute (nn/compute/compute.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/format/config_table.h"

namespace evenkeel::nn {

/// Selects how a product of float32 activations with a weight stored in 16 or 8 bits is computed. The kernels round
/// differently, so the choice changes results in the last bits.
enum class MatmulKernel : uint8_t {
  /// Converts the weight to float32 in registers (nn/kernels/matmul/gemm.h). Activations keep float32 precision. The
  /// order of summation is fixed and does not depend on the number of threads.
  kFp32Exact,
  /// Converts blocks of the weight to float32 in memory and calls the BLAS library's float32 GEMM. The order of
  /// summation may depend on the number of threads.
  kUpcast,
  /// Rounds activations to bfloat16 and calls LibTorch's bfloat16 GEMM. The order of summation may depend on the number
  /// of threads.
  kBf16Vendor,
  /// Rounds activations to bfloat16 and uses the processor's dot-product instructions (nn/kernels/matmul/gemm.h). Sums
  /// are float32, in a fixed order that does not depend on the number of threads.
  kBf16Dot,
  /// Works as kBf16Dot, but uses the processor's tile instructions (AMX), which add 32 terms of a sum at a time. The
  /// order of summation is fixed too, but is not the order of kBf16Dot.
  kBf16Tile,
};
/// Returns the names of the kernels in config files.
constexpr auto names(MatmulKernel) {
  return std::array{config::EnumName<MatmulKernel>{"own", MatmulKernel::kFp32Exact},
                    config::EnumName<MatmulKernel>{"widen", MatmulKernel::kUpcast},
                    config::EnumName<MatmulKernel>{"native", MatmulKernel::kBf16Vendor},
                    config::EnumName<MatmulKernel>{"dot", MatmulKernel::kBf16Dot},
                    config::EnumName<MatmulKernel>{"tile", MatmulKernel::kBf16Tile}};
}

/// The caller of a matrix product. kExpert: the matrix of one expert; most experts run in parallel, one thread each.
/// kLinear: a linear layer; all threads compute it together.
enum class GemmContext : uint8_t { kExpert, kLinear };
/// kForward computes x W^T, kBackward computes dY W.
enum class Direction : uint8_t { kForward, kBackward };

/// Maps a context, a direction and a number of activation rows to a kernel.
class MatmulTable {
 public:
  /// The smallest number of rows of each bucket. A bucket ends below the smallest number of the next one.
  static constexpr std::array<int64_t, 8> kRows{1, 4, 8, 16, 32, 64, 128, 256};

  /// Uses one kernel for all matrix products.
  MatmulTable(MatmulKernel everywhere = MatmulKernel::kFp32Exact) {  // NOLINT(google-explicit-constructor)
    cells_.fill(everywhere);
  }

  /// Returns one typical number of rows for each bucket: the middle of the bucket, and 256 for the last. The smallest
  /// number of the other buckets is not used, because a kernel may change its algorithm at that number.
  static constexpr std::array<int64_t, kRows.size()> typical_rows() {
    auto rows = kRows;
    for (size_t i = 0; i + 1 < kRows.size(); ++i) rows[i] = (kRows[i] + kRows[i + 1]) / 2;
    return rows;
  }

  /// Returns the index of the bucket that contains `rows`.
  static size_t bucket(int64_t rows) {
    size_t i = 0;
    while (i + 1 < kRows.size() && kRows[i + 1] <= rows) ++i;
    return i;
  }
  /// Returns the kernel for matrix products with `rows` rows of activations.
  MatmulKernel at(GemmContext context, Direction direction, int64_t rows) const {
    return cells_[cell(context, direction, rows)];
  }
  /// Sets the kernel of the bucket that contains `rows`.
  void set(GemmContext context, Direction direction, int64_t rows, MatmulKernel kernel) {
    cells_[cell(context, direction, rows)] = kernel;
  }
  bool operator==(const MatmulTable&) const = default;

 private:
  static constexpr size_t kCells = 4 * kRows.size();
  static size_t cell(GemmContext context, Direction direction, int64_t rows) {
    return (static_cast<size_t>(context) * 2 + static_cast<size_t>(direction)) * kRows.size() + bucket(rows);
  }

  std::array<MatmulKernel, kCells> cells_{};
};

}  // namespace evenkeel::nn
