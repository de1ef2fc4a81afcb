#include "nn/kernels/matmul/blas_gemm.h"

#include <type_traits>

// The Fortran interface of the BLAS library inside LibTorch.
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*);
}

namespace evenkeel::nn::kernels {

template <typename T>
void blas_gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
               int64_t ldb, T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  // BLAS is column-major: it computes c^T = op(b)^T op(a)^T.
  const char ta = static_cast<char>(op_a), tb = static_cast<char>(op_b);
  const int mi = static_cast<int>(n), ni = static_cast<int>(m), ki = static_cast<int>(k);
  const int ai = static_cast<int>(lda), bi = static_cast<int>(ldb), ci = static_cast<int>(ldc);
  if constexpr (std::is_same_v<T, float>)
    sgemm_(&tb, &ta, &mi, &ni, &ki, &alpha, b, &bi, a, &ai, &beta, c, &ci);
  else
    dgemm_(&tb, &ta, &mi, &ni, &ki, &alpha, b, &bi, a, &ai, &beta, c, &ci);
}

template void blas_gemm<float>(Op, Op, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t,
                               float, float*, int64_t);
template void blas_gemm<double>(Op, Op, int64_t, int64_t, int64_t, double, const double*, int64_t, const double*,
                                int64_t, double, double*, int64_t);

}  // namespace evenkeel::nn::kernels
