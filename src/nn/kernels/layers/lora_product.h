/// \file  Computes the LoRA term y += scaling (x A^T) B^T and its backward pass on raw memory, for linear layers and
/// experts. Dimension names: N rows, R rank, I in, O out.
#pragma once

#include <cstdint>

#include "nn/kernels/matmul/matmul.h"

namespace evenkeel::nn::kernels {

/// A view of the LoRA factors of one linear layer, or of one expert. The tensors must outlive it.
template <typename T>
struct LoraView {
  StoredMatrix a, b;               ///< a [R, I], b [O, R], in T or a 16-bit type; absent if rank is 0
  int64_t a_step = 0, b_step = 0;  ///< distance between the factors of two experts, in elements; 0: shared
  T *da = nullptr, *db = nullptr;  ///< gradients are added here; contiguous; null: not wanted
  int64_t rank = 0, in = 0, out = 0;
  T scaling = 1;

  /// Returns a view of a [R, I] and b [O, R], or of the first expert of [E, R, I] and [E, O, R]. Rows must be
  /// contiguous. Empty tensors give rank 0.
  static LoraView of(const at::Tensor& a, const at::Tensor& b, double scaling);
  /// Returns the view of expert e. REQUIRES this to be the view of expert 0.
  LoraView expert(int64_t e) const;
};

/// Converts a factor without gradient to a form that LoraView accepts. 16-bit types stay; other types are converted to
/// `dtype`. The factor is copied only if it is converted or its rows are not contiguous.
at::Tensor frozen_factor(const at::Tensor& factor, c10::ScalarType dtype);

/// Returns a view of a matrix in T. \param stride  distance between rows, in elements; 0: `in`
template <typename T>
StoredMatrix dense_matrix(const T* data, int64_t out, int64_t in, int64_t stride = 0) {
  StoredMatrix w;
  w.data = data;
  w.dtype = c10::CppTypeToScalarType<T>::value;
  w.out = out;
  w.in = in;
  w.stride = stride > 0 ? stride : in;
  return w;
}

/// Returns the operand for xa = x A^T, to be computed in one group with other matrix products of x (GroupedOperandOf in
/// matmul/matmul_operands.h).
/// \param xa  [N, R], rows `stride` elements apart
template <typename T>
GroupedOperandOf<T> lora_a_operand(const LoraView<T>& lora, T* xa, int64_t stride) {
  return {lora.a, {xa, stride}};
}

/// Returns the epilogue of x W^T that adds scaling xa B^T. \param xa  [N, R], rows `stride` elements apart
template <typename T>
LowRankEpilogueOf<T> lora_b_epilogue(const LoraView<T>& lora, const T* xa, int64_t stride, int64_t rows) {
  return {{xa, rows, stride, lora.scaling}, lora.b};
}

/// Returns the epilogue of dy W that adds dy_b A. \param dy_b  [N, R], from rank_gradient()
template <typename T>
LowRankEpilogueOf<T> lora_a_epilogue(const LoraView<T>& lora, const T* dy_b, int64_t rows) {
  return {{dy_b, rows, lora.rank}, lora.a};
}

/// Computes dy_b = scaling dy B, the gradient of x A^T. \param dy  [N, O] \param dy_b  [N, R]
template <typename T>
void rank_gradient(const LoraView<T>& lora, const T* dy, int64_t rows, T* dy_b, MatmulScratch<T>& scratch) {
  matmul_nn<T>(MatmulKernel::kFp32Exact, {dy, rows, lora.out, lora.scaling}, {lora.b, {dy_b, lora.rank}}, scratch);
}

/// The inputs of factor_gradients().
template <typename T>
struct LoraPass {
  int64_t rows = 0;
  const T *x = nullptr, *dy = nullptr;  ///< x [N, I], dy [N, O]
  const T* xa = nullptr;                ///< [N, R] = x A^T, rows `xa_stride` elements apart
  int64_t xa_stride = 0;
  T* dy_b = nullptr;  ///< [N, R] = scaling dy B, without the row weights; may be overwritten
  /// [N] w: dA += sum_n w_n dy_b_n^T x_n, and dB likewise. Null: all 1.
  const T* row_weights = nullptr;
};

/// Buffers of factor_gradients().
template <typename T>
struct LoraScratch {
  Scratch<T> xa, db;
};

/// Computes dA += dy_b^T x and dB += scaling dy^T xa. A gradient whose pointer in `lora` is null is skipped.
template <typename T>
void factor_gradients(const LoraView<T>& lora, const LoraPass<T>& pass, LoraScratch<T>& scratch,
                      MatmulScratch<T>& product);

}  // namespace evenkeel::nn::kernels
