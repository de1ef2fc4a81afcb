/// \file  Calls the GEMM of the BLAS library inside LibTorch on raw row-major memory.
#pragma once

#include <cstdint>

namespace evenkeel::nn::kernels {

enum class Op : char { kNone = 'N', kTranspose = 'T' };

/// Computes c = alpha * op(a) op(b) + beta * c, where op(a) is [m, k], op(b) [k, n] and c [m, n]. lda, ldb and ldc are
/// the distances between rows, in elements. Does nothing if m or n is 0. T is float or double. Threads: one inside a
/// parallel region, else as many as the library uses.
template <typename T>
void blas_gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
               int64_t ldb, T beta, T* c, int64_t ldc);

}  // namespace evenkeel::nn::kernels
