/// \file  Matrix products on raw row-major memory, and products with a weight that is stored in a narrower type than
/// the activations. Single-threaded inside a parallel region, the library's threads outside of one.
#pragma once

#include <cstdint>

#include "nn/kernels/scratch.h"
#include "nn/kernels/stored_matrix.h"

namespace evenkeel::kernels {

enum class Op : char { kNone = 'N', kTranspose = 'T' };

/// c [m, n] = alpha * op(a) op(b) + beta * c, row-major with leading dimensions. Does nothing when m or n is 0.
template <typename T>
void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
          T beta, T* c, int64_t ldc);

/// What a product with a stored weight needs beside its operands.
template <typename T>
struct ProductScratch {
  Scratch<T> panel;                         // widened rows of the weight
  Scratch<uint16_t> narrow_in, narrow_out;  // bfloat16 operands of the native path
};

/// y [rows, out] = x w^T (+ y when `add`), on the path it was made for. On the widening path a narrow weight is
/// widened a panel of rows at a time.
template <typename T>
void times_transposed(const T* x, int64_t rows, const StoredMatrix& w, T* y, bool add, ProductScratch<T>& scratch);

/// y [rows, in] = x w (+ y when `add`).
template <typename T>
void times(const T* x, int64_t rows, const StoredMatrix& w, T* y, bool add, ProductScratch<T>& scratch);

}  // namespace evenkeel::kernels
