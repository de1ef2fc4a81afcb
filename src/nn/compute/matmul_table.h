/// \file  Which kernel makes which product with a frozen weight: a value that goes down with every forward call from
/// ForwardOptions, so two models, or two clients, of one process may differ. Processors differ in which kernel is
/// faster at which shape; a run chooses once, when it is created (nn/dense/matmul_probe.h), or is told.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/format/config_table.h"

namespace evenkeel {

/// How a weight that is stored in 16 bits, or in 8, meets float32 activations. The choice changes rounding.
enum class ProductKernel : uint8_t {
  kOwn,    ///< widened in registers (nn/kernels/matmul/packed_matmul.h). Exact products of the stored values, summed in
           ///< float32 in an order that does not depend on the number of threads
  kWiden,  ///< panels of the weight become float32, then the library's float32 product; the number of threads may
           ///< change its order of summation
  kNative,  ///< activations are rounded to bfloat16 and the library's bfloat16 product is used, likewise
  kDot,     ///< activations are rounded to bfloat16, pairs of terms go through the processor's dot products
  ///< (nn/kernels/matmul/packed_matmul.h); float32 sums in an order of their own, whatever the number of threads
  kTile,  ///< likewise, 32 terms at a time through the processor's tiles (AMX)
};
constexpr auto names(ProductKernel) {
  return std::array{config::EnumName<ProductKernel>{"own", ProductKernel::kOwn},
                    config::EnumName<ProductKernel>{"widen", ProductKernel::kWiden},
                    config::EnumName<ProductKernel>{"native", ProductKernel::kNative},
                    config::EnumName<ProductKernel>{"dot", ProductKernel::kDot},
                    config::EnumName<ProductKernel>{"tile", ProductKernel::kTile}};
}

/// Whose product: of one expert, made by one thread beside others, or of a linear, made by all threads.
enum class ProductPlace : uint8_t { kExpert, kLinear };
enum class Direction : uint8_t { kForward, kBackward };  ///< x W^T, dY W

/// The kernel of every place, direction and number of rows.
class ProductTable {
 public:
  /// A bucket is the numbers of rows from its own to below the next one's.
  static constexpr std::array<int64_t, 8> kRows{1, 4, 8, 16, 32, 64, 128, 256};

  ProductTable(ProductKernel everywhere = ProductKernel::kOwn) {  // NOLINT(google-explicit-constructor)
    cells_.fill(everywhere);
  }
  /// As a list of numbers, which a graph can keep.
  static ProductTable unpacked(const std::vector<int64_t>& kernels) {
    ProductTable table;
    for (size_t i = 0; i < kCells; ++i) table.cells_[i] = static_cast<ProductKernel>(kernels.at(i));
    return table;
  }
  std::vector<int64_t> packed() const {
    std::vector<int64_t> kernels;
    for (const auto kernel : cells_) kernels.push_back(static_cast<int64_t>(kernel));
    return kernels;
  }
  /// The middle of each bucket, and the last one's first: what stands for its rows where one number must. A bucket's
  /// first rows may be the last that a kernel takes another way.
  static constexpr std::array<int64_t, kRows.size()> typical_rows() {
    auto rows = kRows;
    for (size_t i = 0; i + 1 < kRows.size(); ++i) rows[i] = (kRows[i] + kRows[i + 1]) / 2;
    return rows;
  }

  static size_t bucket(int64_t rows) {
    size_t i = 0;
    while (i + 1 < kRows.size() && kRows[i + 1] <= rows) ++i;
    return i;
  }
  ProductKernel at(ProductPlace place, Direction direction, int64_t rows) const {
    return cells_[cell(place, direction, rows)];
  }
  void put(ProductPlace place, Direction direction, int64_t rows, ProductKernel kernel) {
    cells_[cell(place, direction, rows)] = kernel;
  }
  bool operator==(const ProductTable&) const = default;

 private:
  static constexpr size_t kCells = 4 * kRows.size();
  static size_t cell(ProductPlace place, Direction direction, int64_t rows) {
    return (static_cast<size_t>(place) * 2 + static_cast<size_t>(direction)) * kRows.size() + bucket(rows);
  }

  std::array<ProductKernel, kCells> cells_{};
};

}  // namespace evenkeel
