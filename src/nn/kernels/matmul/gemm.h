/// \file  The library's matrix product on raw row-major memory. Single-threaded inside a parallel region, the library's
/// threads outside of one.
#pragma once

#include <cstdint>

namespace evenkeel::kernels {

enum class Op : char { kNone = 'N', kTranspose = 'T' };

/// c [m, n] = alpha * op(a) op(b) + beta * c, row-major with leading dimensions. Does nothing when m or n is 0.
template <typename T>
void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
          T beta, T* c, int64_t ldc);

}  // namespace evenkeel::kernels
