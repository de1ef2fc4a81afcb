/// \file  Causal attention of one sequence on raw memory: the query heads that share one key head. Scores of some
/// queries with all that they see are made at once, so memory does not grow with the square of the length, and no work
/// goes to later tokens but within those queries. Sums are those of nn/kernels/matmul/gemm.h: their order
/// depends on nothing but the sequence. Dimension names: L tokens, M query heads of the key head, P head width.
#pragma once

#include <cstdint>

#include "nn/kernels/matmul/matmul.h"

namespace evenkeel::kernels {

template <typename T>
struct AttentionScratch {
  MatmulScratch<T> product;
  Scratch<T> scores, dscores;
};

/// A token's rows are `q_stride` or `kv_stride` numbers apart, those of its query heads P.
template <typename T>
struct CausalAttention {
  const T *q = nullptr, *k = nullptr, *v = nullptr;  ///< [L, M, P], [L, P], [L, P]
  int64_t length = 0, heads = 0, width = 0, q_stride = 0, kv_stride = 0;
  T* out = nullptr;        ///< [L, M, P], rows as q's
  T* logsumexp = nullptr;  ///< [L, M], rows `logsumexp_stride` apart: what a backward pass needs
  int64_t logsumexp_stride = 0;
};

/// out = softmax(q k^T / sqrt(P)) v, each token seeing those up to itself.
template <typename T>
void causal_attention(const CausalAttention<T>& of, AttentionScratch<T>& scratch);

/// Rows as those of q, k and v; written over.
template <typename T>
struct CausalAttentionGradients {
  const T* dout = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr;
};
/// REQUIRES what the forward pass wrote.
template <typename T>
void causal_attention_backward(const CausalAttention<T>& of, const CausalAttentionGradients<T>& grads,
                               AttentionScratch<T>& scratch);

}  // namespace evenkeel::kernels
