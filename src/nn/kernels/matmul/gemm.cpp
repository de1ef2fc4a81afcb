#include "nn/kernels/matmul/gemm.h"

#include <type_traits>

// The BLAS inside LibTorch, by its standard Fortran names.
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*);
}

namespace evenkeel::kernels {

template <typename T>
void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
          T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  // Row-major c is column-major c^T = op(b)^T op(a)^T.
  const char ta = static_cast<char>(op_a), tb = static_cast<char>(op_b);
  const int mi = static_cast<int>(n), ni = static_cast<int>(m), ki = static_cast<int>(k);
  const int ai = static_cast<int>(lda), bi = static_cast<int>(ldb), ci = static_cast<int>(ldc);
  if constexpr (std::is_same_v<T, float>)
    sgemm_(&tb, &ta, &mi, &ni, &ki, &alpha, b, &bi, a, &ai, &beta, c, &ci);
  else
    dgemm_(&tb, &ta, &mi, &ni, &ki, &alpha, b, &bi, a, &ai, &beta, c, &ci);
}

template void gemm<float>(Op, Op, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float,
                          float*, int64_t);
template void gemm<double>(Op, Op, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*, int64_t,
                           double, double*, int64_t);

}  // namespace evenkeel::kernels
