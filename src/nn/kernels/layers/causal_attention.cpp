#include "nn/kernels/layers/causal_attention.h"

#include <algorithm>
#include <cmath>

#include "nn/kernels/layers/lora_product.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn::kernels {
namespace {

constexpr int64_t kQueries = 64;  // queries per block: their scores with 1,000 tokens take 256 KiB

// A block of consecutive queries of one head.
template <typename T>
struct Queries {
  const CausalAttention<T>& of;
  int64_t head, first, count;

  // The keys of the block begin with token first_key(). Query i attends to the keys [begin(i), end(i)) of the block.
  int64_t first_key() const { return first_seen_by(0); }
  int64_t keys() const { return first + count - first_key(); }
  int64_t begin(int64_t i) const { return first_seen_by(i) - first_key(); }
  int64_t end(int64_t i) const { return first + i + 1 - first_key(); }
  int64_t first_seen_by(int64_t i) const { return of.window > 0 ? std::max<int64_t>(0, first + i + 1 - of.window) : 0; }
  T scale() const { return T(1) / std::sqrt(static_cast<T>(of.width)); }
  int64_t at() const { return first * of.q_stride + head * of.width; }
  T* logsumexp(int64_t i) const { return of.logsumexp + (first + i) * of.logsumexp_stride + head; }

  ActivationsOf<T> rows(const T* all, T factor = 1) const { return {all + at(), count, of.q_stride, factor}; }
  ResultOf<T> result(T* all) const { return {all + at(), of.q_stride}; }
  StoredMatrix matrix(const T* all) const { return dense_matrix(all + at(), count, of.width, of.q_stride); }
  StoredMatrix seen(const T* keys_or_values) const {
    return dense_matrix(keys_or_values + first_key() * of.kv_stride, keys(), of.width, of.kv_stride);
  }
  ResultOf<T> sum(T* keys_or_values) const { return {keys_or_values + first_key() * of.kv_stride, of.kv_stride, true}; }
};

template <typename T, typename F>
void for_each_query_block(const CausalAttention<T>& of, const F& f) {
  for (int64_t head = 0; head < of.heads; ++head)
    for (int64_t first = 0; first < of.length; first += kQueries)
      f(Queries<T>{of, head, first, std::min(kQueries, of.length - first)});
}

// Computes the scores q k^T / sqrt(P), [count, keys].
template <typename T>
T* scores_of(const Queries<T>& queries, AttentionScratch<T>& scratch) {
  T* scores = scratch.scores.at_least(queries.count * queries.keys());
  matmul_nt<T>(MatmulKernel::kFp32Exact, queries.rows(queries.of.q, queries.scale()), queries.seen(queries.of.k),
               {scores, queries.keys()}, scratch.product);
  return scores;
}

// Replaces scores s by cap tanh(s / cap), and multiplies `dscores`, if not null, by the derivative, 1 - tanh^2.
template <typename T>
void cap_scores(T* scores, T cap, T* dscores, int64_t count) {
  for (int64_t j = 0; j < count; ++j) {
    const T squashed = std::tanh(scores[j] / cap);
    scores[j] = cap * squashed;
    if (dscores) dscores[j] *= T(1) - squashed * squashed;
  }
}

// Replaces scores by their softmax. Keys that the query does not attend to get 0.
template <typename T>
void softmax_rows(const Queries<T>& queries, T* scores) {
  const int64_t keys = queries.keys();
  for (int64_t i = 0; i < queries.count; ++i, scores += keys) {
    T* seen = scores + queries.begin(i);
    const int64_t count = queries.end(i) - queries.begin(i);
    if (queries.of.soft_cap > 0) cap_scores<T>(seen, queries.of.soft_cap, nullptr, count);
    const T top = max_of(seen, count), sum = exp_shifted(seen, top, count);
    scaled_copy(T(1) / sum, seen, seen, count);
    std::fill(scores, seen, T(0));
    std::fill(seen + count, scores + keys, T(0));
    *queries.logsumexp(i) = top + std::log(sum);
  }
}

// Recomputes the softmax from the scores, and turns its gradient in `dscores` into the gradient of the scores.
template <typename T>
void softmax_rows_backward(const Queries<T>& queries, const T* dout, T* scores, T* dscores) {
  const auto& of = queries.of;
  const int64_t keys = queries.keys();
  for (int64_t i = 0; i < queries.count; ++i, scores += keys, dscores += keys) {
    const int64_t begin = queries.begin(i), end = queries.end(i), row = queries.at() + i * of.q_stride;
    // The gradient of a softmax is p * (dp - sum p dp), and the sum over keys equals dO . O.
    const T sum_p_dp = dot(dout + row, static_cast<const T*>(of.out) + row, of.width);
    for (int64_t j = begin; j < end; ++j) dscores[j] -= sum_p_dp;
    if (of.soft_cap > 0) cap_scores(scores + begin, of.soft_cap, dscores + begin, end - begin);
    exp_shifted(scores + begin, *queries.logsumexp(i), end - begin);
    scaled_product(queries.scale(), scores + begin, dscores + begin, dscores + begin, end - begin);
    for (T* all : {scores, dscores}) {
      std::fill(all, all + begin, T(0));
      std::fill(all + end, all + keys, T(0));
    }
  }
}

}  // namespace

template <typename T>
void causal_attention(const CausalAttention<T>& of, AttentionScratch<T>& scratch) {
  for_each_query_block(of, [&](const Queries<T>& queries) {
    T* scores = scores_of(queries, scratch);
    softmax_rows(queries, scores);
    matmul_nn<T>(MatmulKernel::kFp32Exact, {scores, queries.count, queries.keys()},
                 {queries.seen(of.v), queries.result(of.out)}, scratch.product);
  });
}

template <typename T>
void causal_attention_backward(const CausalAttention<T>& of, const CausalAttentionGradients<T>& grads,
                               AttentionScratch<T>& scratch) {
  for (T* all : {grads.dk, grads.dv})
    for (int64_t token = 0; token < of.length; ++token) std::fill_n(all + token * of.kv_stride, of.width, T(0));
  for_each_query_block(of, [&](const Queries<T>& queries) {
    const int64_t keys = queries.keys();
    T* scores = scores_of(queries, scratch);
    T* dscores = scratch.dscores.at_least(queries.count * keys);
    matmul_nt<T>(MatmulKernel::kFp32Exact, queries.rows(grads.dout), queries.seen(of.v), {dscores, keys},
                 scratch.product);
    softmax_rows_backward(queries, grads.dout, scores, dscores);
    matmul_nn<T>(MatmulKernel::kFp32Exact, {dscores, queries.count, keys},
                 {queries.seen(of.k), queries.result(grads.dq)}, scratch.product);
    // dv += p^T dO and dk += dS^T q, over the queries of the block.
    matmul_tn<T>({scores, queries.count, keys}, keys, queries.matrix(grads.dout), queries.sum(grads.dv),
                 scratch.product);
    matmul_tn<T>({dscores, queries.count, keys}, keys, queries.matrix(of.q), queries.sum(grads.dk), scratch.product);
  });
}

#define EK_INSTANTIATE(T)                                                                                   \
  template void causal_attention<T>(const CausalAttention<T>&, AttentionScratch<T>&);                       \
  template void causal_attention_backward<T>(const CausalAttention<T>&, const CausalAttentionGradients<T>&, \
                                             AttentionScratch<T>&);
EK_INSTANTIATE(float)
EK_INSTANTIATE(double)
#undef EK_INSTANTIATE

}  // namespace evenkeel::nn::kernels
