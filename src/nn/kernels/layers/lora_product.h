/// \file  Low-rank factors beside a frozen weight on raw memory: y += scaling (x A^T) B^T and its backward pass, as
/// linear and experts share it. Dimension names: N rows, R rank, I in, O out.
#pragma once

#include <cstdint>

#include "nn/kernels/matmul/matmul.h"

namespace evenkeel::kernels {

/// The factors of one linear, or of one expert of a stack.
template <typename T>
struct LoraView {
  StoredMatrix a, b;               ///< [R, I], [O, R], in T or in 16 bits; absent when rank is 0
  int64_t a_step = 0, b_step = 0;  ///< numbers from one expert's to the next one's; 0 where they share one
  T *da = nullptr, *db = nullptr;  ///< without gaps, added to; null: not asked for
  int64_t rank = 0, in = 0, out = 0;
  T scaling = 1;

  /// \param a, b  of one linear, or with experts in front; rows without gaps. Empty: no factors
  static LoraView of(const at::Tensor& a, const at::Tensor& b, double scaling);
  /// Of expert e, where this is of expert 0.
  LoraView expert(int64_t e) const;
};

/// A factor that gets no gradient, as LoraView takes it: 16 bits stay as they are, all else becomes `dtype`; a copy
/// only where rows have gaps.
at::Tensor frozen_factor(const at::Tensor& factor, c10::ScalarType dtype);

/// A matrix of activations' own type, rows without gaps between them.
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

/// x A^T as one of the products with x. \param xa  [N, R], rows `stride` apart
template <typename T>
GroupedOperandOf<T> lora_a_operand(const LoraView<T>& lora, T* xa, int64_t stride) {
  return {lora.a, {xa, stride}};
}

/// scaling xa B^T beside x W^T. \param xa  [N, R], rows `stride` apart
template <typename T>
LowRankEpilogueOf<T> lora_b_epilogue(const LoraView<T>& lora, const T* xa, int64_t stride, int64_t rows) {
  return {{xa, rows, stride, lora.scaling}, lora.b};
}

/// dy_b A beside dy W. \param dy_b  [N, R]
template <typename T>
LowRankEpilogueOf<T> lora_a_epilogue(const LoraView<T>& lora, const T* dy_b, int64_t rows) {
  return {{dy_b, rows, lora.rank}, lora.a};
}

/// dy_b = scaling dy B. \param dy  [N, O]; dy_b [N, R]
template <typename T>
void rank_gradient(const LoraView<T>& lora, const T* dy, int64_t rows, T* dy_b, MatmulScratch<T>& scratch) {
  matmul_nn<T>(MatmulKernel::kFp32Exact, {dy, rows, lora.out, lora.scaling}, {lora.b, {dy_b, lora.rank}}, scratch);
}

/// What the gradients of the factors of y += scaling (x A^T) B^T are made of.
template <typename T>
struct LoraPass {
  int64_t rows = 0;
  const T *x = nullptr, *dy = nullptr;  ///< [N, I], [N, O]
  const T* xa = nullptr;                ///< [N, R], rows `xa_stride` apart
  int64_t xa_stride = 0;
  T* dy_b = nullptr;               ///< [N, R], scaling dy B; overwritten
  const T* row_weights = nullptr;  ///< [N], or null: they multiply the rows of dy in dA and dB
};

template <typename T>
struct LoraScratch {
  Scratch<T> xa, db;
};

/// dA += dy_b^T x and dB += scaling dy^T xa, as far as they are asked for.
template <typename T>
void factor_gradients(const LoraView<T>& lora, const LoraPass<T>& pass, LoraScratch<T>& scratch,
                      MatmulScratch<T>& product);

}  // namespace evenkeel::kernels
