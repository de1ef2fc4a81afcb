/// \file  The one routine for products with a frozen weight, and with the small factors beside it: by the kernel that
/// the caller's ProductTable names. float32 activations take any kernel; float64, in tests, always the library's.
#pragma once

#include <cstdint>
#include <span>

#include "nn/compute/matmul_table.h"
#include "nn/kernels/matmul/packed_matmul.h"
#include "nn/kernels/primitives/scratch.h"

namespace evenkeel::kernels {

/// What products need beside their operands. Keep it between products.
template <typename T>
struct ProductScratch {
  PackedScratch packed;                     // kOwn, kDot, kTile
  Scratch<T> panel;                         // kWiden: rows of the weight
  Scratch<uint16_t> narrow_in, narrow_out;  // kNative: bfloat16 operands
};

/// y [rows, out] (+)= x W^T for each weight, x [rows, in]. Addends are always kOwn's.
template <typename T>
void times_transposed(ProductKernel kernel, const ActivationsOf<T>& x, std::span<const SideBySideOf<T>> products,
                      ProductScratch<T>& scratch);
template <typename T>
void times_transposed(ProductKernel kernel, const ActivationsOf<T>& x, const StoredMatrix& w, const ResultOf<T>& y,
                      ProductScratch<T>& scratch) {
  const SideBySideOf<T> one{w, y};
  times_transposed<T>(kernel, x, std::span(&one, 1), scratch);
}

/// y [rows, in] (+)= x W, x [rows, out].
template <typename T>
void times(ProductKernel kernel, const ActivationsOf<T>& x, const SideBySideOf<T>& product, ProductScratch<T>& scratch);

/// y [width, in] (+)= x^T w, x [rows, width], w [rows, in]: the gradient of a factor. Always kOwn.
template <typename T>
void transposed_times(const ActivationsOf<T>& x, int64_t width, const StoredMatrix& w, const ResultOf<T>& y,
                      ProductScratch<T>& scratch);

/// The kernel that `w` takes where `asked` is the table's. Those that round activations are for weights of 2^18 numbers
/// and more, so that routers keep their exact scores: native in bfloat16, dot and tile in that and int8. Widen is for
/// 16 bits. All others take kOwn.
ProductKernel kernel_for(const StoredMatrix& w, ProductKernel asked);

}  // namespace evenkeel::kernels
