/// \file  Matrix products on raw row-major memory, and products with a weight that is stored in a narrower type than
/// the activations. Single-threaded inside a parallel region, the library's threads outside of one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <new>

#include "nn/matmul_path.h"

namespace evenkeel::kernels {

enum class Op : char { kNone = 'N', kTranspose = 'T' };

/// c [m, n] = alpha * op(a) op(b) + beta * c, row-major with leading dimensions. Does nothing when m or n is 0.
template <typename T>
void gemm(Op op_a, Op op_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
          T beta, T* c, int64_t ldc);

/// A frozen weight [out, in], contiguous.
struct StoredMatrix {
  const void* data = nullptr;
  c10::ScalarType dtype = c10::kFloat;
  int64_t out = 0, in = 0;
  bool native = false;  ///< takes the bfloat16 product (takes_native_path)
  static StoredMatrix of(const at::Tensor& w_OI, MatmulPath path);
};

/// Reusable memory of one thread, on cache-line boundaries: the library's products may sum in another order when their
/// operands are aligned otherwise, and a run must repeat to the bit.
template <typename T>
class Scratch {
 public:
  /// At least n numbers, uninitialised; the pointer is good until the next call with a larger n.
  T* at_least(int64_t n) {
    if (room_ < n) {
      memory_.reset(static_cast<T*>(::operator new(static_cast<size_t>(n) * sizeof(T), kAlignment)));
      room_ = n;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(T* memory) const { ::operator delete(memory, kAlignment); }
  };
  std::unique_ptr<T, Free> memory_;
  int64_t room_ = 0;
};

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
