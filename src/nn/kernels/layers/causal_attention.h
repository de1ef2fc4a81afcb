/// \file  Computes the causal attention of one sequence and one key/value head on raw memory. Queries are processed in
/// blocks of 64. The scores of a block with all tokens that it attends to are computed at once, so memory grows
/// linearly with the length, or with the window. Matrix products use nn/kernels/matmul/gemm.h, so the order of
/// summation depends only on the sequence. Threads: the caller's. Dimension names: L tokens, M query heads that share
/// the key head, P head width.
#pragma once

#include <cstdint>

#include "nn/kernels/matmul/matmul.h"

namespace evenkeel::nn::kernels {

/// Buffers of one call.
template <typename T>
struct AttentionScratch {
  MatmulScratch<T> product;
  Scratch<T> scores, dscores;
};

/// The operands of one call. Tokens are `q_stride` (q and out) or `kv_stride` (k and v) elements apart; the query heads
/// of a token are P elements apart.
template <typename T>
struct CausalAttention {
  const T *q = nullptr, *k = nullptr, *v = nullptr;  ///< q [L, M, P], k and v [L, P]
  int64_t length = 0, heads = 0, width = 0, q_stride = 0, kv_stride = 0;
  T* out = nullptr;        ///< [L, M, P], laid out as q
  T* logsumexp = nullptr;  ///< [L, M], tokens `logsumexp_stride` elements apart; for the backward pass
  int64_t logsumexp_stride = 0;
  int64_t window = 0;  ///< how many tokens a token attends to, itself included; 0: all up to itself
  T soft_cap = 0;      ///< c above 0: each score s is replaced by c tanh(s / c)
};

/// Computes out = softmax(q k^T / sqrt(P)) v and logsumexp, the logarithm of the softmax's denominator. Each token
/// attends to the tokens up to itself, or to the last `window` of them. `out` must not overlap q, k or v.
template <typename T>
void causal_attention(const CausalAttention<T>& of, AttentionScratch<T>& scratch);

/// The gradients, laid out as out, q, k and v. dq, dk and dv are overwritten.
template <typename T>
struct CausalAttentionGradients {
  const T* dout = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
/// Computes dq, dk and dv from dout. REQUIRES `out` and `logsumexp` of the forward pass.
template <typename T>
void causal_attention_backward(const CausalAttention<T>& of, const CausalAttentionGradients<T>& grads,
                               AttentionScratch<T>& scratch);

}  // namespace evenkeel::nn::kernels
