#include "nn/kernels/gemm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <type_traits>

#include "base/error.h"
#include "nn/kernels/frozen_matmul.h"
#include "nn/kernels/vector.h"

// The BLAS inside LibTorch, by its standard Fortran names.
extern "C" {
void sgemm_(const char*, const char*, const int*, const int*, const int*, const float*, const float*, const int*,
            const float*, const int*, const float*, float*, const int*);
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*);
}

namespace evenkeel::kernels {
namespace {

// Rows widened at once: with 2048 columns a panel is 1 MiB of float32, the size of a second-level cache.
int64_t panel_rows(const StoredMatrix& w) {
  return std::clamp<int64_t>((int64_t{1} << 18) / std::max<int64_t>(w.in, 1), 16, 1024);
}

template <typename T>
bool stored_as(const StoredMatrix& w) {
  return w.dtype == c10::CppTypeToScalarType<T>::value;
}

template <typename T>
const T* widened_rows(const StoredMatrix& w, int64_t first, int64_t rows, Scratch<T>& scratch) {
  T* panel = scratch.at_least(rows * w.in);
  const auto* bytes = static_cast<const char*>(w.data) + first * w.in * static_cast<int64_t>(c10::elementSize(w.dtype));
  widen(bytes, w.dtype, panel, rows * w.in);
  return panel;
}

template <typename T>
bool takes_native(const StoredMatrix& w) {
  return std::is_same_v<T, float> && w.native;
}

at::Tensor view_of(const void* data, int64_t rows, int64_t columns) {
  return at::from_blob(const_cast<void*>(data), {rows, columns}, at::kBFloat16);
}

// The library's bfloat16 product writes bfloat16, so operands and result pass through narrow copies.
template <typename T>
void native_product(const T* x, int64_t rows, const StoredMatrix& w, T* y, bool add, Op op,
                    ProductScratch<T>& scratch) {
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const int64_t in = op == Op::kTranspose ? w.in : w.out, out = op == Op::kTranspose ? w.out : w.in;
  auto* narrow_x = reinterpret_cast<c10::BFloat16*>(scratch.narrow_in.at_least(rows * in));
  auto* narrow_y = reinterpret_cast<c10::BFloat16*>(scratch.narrow_out.at_least(rows * out));
  narrow(x, narrow_x, rows * in);
  auto result = view_of(narrow_y, rows, out);
  const auto weight = view_of(w.data, w.out, w.in);
  at::mm_out(result, view_of(narrow_x, rows, in), op == Op::kTranspose ? weight.t() : weight);
  add ? add_widened(narrow_y, y, rows * out) : widen(narrow_y, c10::kBFloat16, y, rows * out);
}

}  // namespace

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

StoredMatrix StoredMatrix::of(const at::Tensor& w_OI, MatmulPath path) {
  EK_CHECK(w_OI.dim() == 2 && w_OI.is_contiguous(), kShape, "a stored weight must be a contiguous matrix, got sizes ",
           w_OI.sizes());
  return {w_OI.const_data_ptr(),         w_OI.scalar_type(), w_OI.size(0), w_OI.size(1),
          takes_native_path(w_OI, path), w_OI.size(1),       nullptr};
}

template <typename T>
void times_transposed(const T* x, int64_t rows, const StoredMatrix& w, T* y, bool add, ProductScratch<T>& scratch) {
  if (takes_native<T>(w)) return native_product(x, rows, w, y, add, Op::kTranspose, scratch);
  const T beta = add ? T(1) : T(0);
  if (stored_as<T>(w)) {
    gemm(Op::kNone, Op::kTranspose, rows, w.out, w.in, T(1), x, w.in, static_cast<const T*>(w.data), w.in, beta, y,
         w.out);
    return;
  }
  const int64_t step = panel_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const T* panel = widened_rows(w, o, n, scratch.panel);
    gemm(Op::kNone, Op::kTranspose, rows, n, w.in, T(1), x, w.in, panel, w.in, beta, y + o, w.out);
  }
}

template <typename T>
void times(const T* x, int64_t rows, const StoredMatrix& w, T* y, bool add, ProductScratch<T>& scratch) {
  if (takes_native<T>(w)) return native_product(x, rows, w, y, add, Op::kNone, scratch);
  if (stored_as<T>(w)) {
    gemm(Op::kNone, Op::kNone, rows, w.in, w.out, T(1), x, w.out, static_cast<const T*>(w.data), w.in,
         add ? T(1) : T(0), y, w.in);
    return;
  }
  const int64_t step = panel_rows(w);
  for (int64_t o = 0; o < w.out; o += step) {
    const int64_t n = std::min(step, w.out - o);
    const T* panel = widened_rows(w, o, n, scratch.panel);
    gemm(Op::kNone, Op::kNone, rows, w.in, n, T(1), x + o, w.out, panel, w.in, add || o > 0 ? T(1) : T(0), y, w.in);
  }
}

#define EK_INSTANTIATE(T)                                                                                            \
  template void gemm<T>(Op, Op, int64_t, int64_t, int64_t, T, const T*, int64_t, const T*, int64_t, T, T*, int64_t); \
  template void times_transposed<T>(const T*, int64_t, const StoredMatrix&, T*, bool, ProductScratch<T>&);           \
  template void times<T>(const T*, int64_t, const StoredMatrix&, T*, bool, ProductScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::kernels
