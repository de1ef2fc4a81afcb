/// \file  Which kernel makes which product with a frozen weight: a value that goes down with every forward call from
/// ForwardOptions, so two models, or two clients, of one process may differ. Processors differ in which kernel is
/// faster at which shape; a run chooses once, when it is created (nn/product_probe.h), or is told.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/config.h"

namespace evenkeel {

/// How a weight that is stored in 16 bits, or in 8, meets float32 activations. The choice changes rounding.
enum class ProductKernel : uint8_t {
  kOwn,     ///< widened in registers (nn/kernels/packed_product.h). Exact products of the stored values, summed in
            ///< float32 in an order that does not depend on the number of threads
  kWiden,   ///< panels of the weight become float32, then the library's float32 product; the number of threads may
            ///< change its order of summation
  kNative,  ///< activations are rounded to bfloat16 and the library's bfloat16 product is used, likewise
  kDot,     ///< activations are rounded to bfloat16, pairs of terms go through the processor's dot products
            ///< (nn/kernels/packed_product.h); float32 sums in an order of their own, whatever the number of threads
};
constexpr auto names(ProductKernel) {
  return std::array{config::EnumName<ProductKernel>{"own", ProductKernel::kOwn},
                    config::EnumName<ProductKernel>{"widen", ProductKernel::kWiden},
                    config::EnumName<ProductKernel>{"native", ProductKernel::kNative},
                    config::EnumName<ProductKernel>{"dot", ProductKernel::kDot}};
}

/// Whose product: of one expert, made by one thread beside others, or of a linear, made by all threads.
enum class ProductPlace : uint8_t { kExpert, kLinear };
enum class Direction : uint8_t { kForward, kBackward };  ///< x W^T, dY W

/// The kernel of every place, direction and number of rows. 64 bits, so that a graph can keep it.
class ProductTable {
 public:
  /// A bucket is the numbers of rows from its own to below the next one's.
  static constexpr std::array<int64_t, 8> kRows{1, 4, 8, 16, 32, 64, 128, 256};

  ProductTable(ProductKernel everywhere = ProductKernel::kOwn) {  // NOLINT(google-explicit-constructor)
    for (size_t i = 0; i < kCells; ++i) set(i, everywhere);
  }
  static ProductTable unpacked(int64_t bits) {
    ProductTable table;
    table.bits_ = static_cast<uint64_t>(bits);
    return table;
  }
  int64_t packed() const { return static_cast<int64_t>(bits_); }
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
    return static_cast<ProductKernel>(bits_ >> shift(cell(place, direction, rows)) & 3);
  }
  void put(ProductPlace place, Direction direction, int64_t rows, ProductKernel kernel) {
    set(cell(place, direction, rows), kernel);
  }
  bool operator==(const ProductTable&) const = default;

 private:
  static constexpr size_t kCells = 4 * kRows.size();
  static size_t cell(ProductPlace place, Direction direction, int64_t rows) {
    return (static_cast<size_t>(place) * 2 + static_cast<size_t>(direction)) * kRows.size() + bucket(rows);
  }
  static size_t shift(size_t cell) { return 2 * cell; }
  void set(size_t cell, ProductKernel kernel) {
    bits_ = (bits_ & ~(uint64_t{3} << shift(cell))) | static_cast<uint64_t>(kernel) << shift(cell);
  }

  uint64_t bits_ = 0;
};

}  // namespace evenkeel
