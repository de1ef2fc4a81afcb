#include "nn/attention/cached_attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/plain/error.h"
#include "nn/kernels/matmul/blas_gemm.h"
#include "nn/kernels/primitives/scratch.h"
#include "nn/kernels/primitives/vector.h"

namespace evenkeel::nn {
namespace {

constexpr int64_t kPieceRows = 64;   // queries per piece: their scores stay in the cache
constexpr int64_t kMinGemmRows = 4;  // with at least so many queries, a GEMM is faster than dot products
constexpr int64_t kMinGemmKeys = 8;

/// Consecutive queries of one sequence. The first query attends to `visible` tokens, itself included. Each later query
/// attends to one more.
struct QueryRows {
  size_t sequence;
  int64_t first, count, visible;
};

/// The queries that one thread processes for one head: those of several short sequences, or part of a long one.
struct QueryPiece {
  std::vector<QueryRows> rows;
  int64_t first = 0, count = 0, longest = 0;

  void add(const QueryRows& one) {
    if (rows.empty()) first = one.first;
    rows.push_back(one);
    count += one.count;
    longest = std::max(longest, one.visible + one.count - 1);
  }
};

/// A run of cached rows and the queries of a piece that attend to it.
struct RunQueries {
  const KvRun* run;
  int64_t column;        // the column of the run in the scores of its sequence
  int64_t first, count;  // queries, counted from the piece's first
  int64_t keys;          // rows of the run that any query attends to
};

std::vector<QueryPiece> pieces_of(std::span<const int64_t> offsets, const KvCache& cache) {
  std::vector<QueryPiece> pieces(1);
  for (size_t b = 0; b + 1 < offsets.size(); ++b) {
    const int64_t length = cache.sequences[b].length(), end = offsets[b + 1];
    for (int64_t first = offsets[b]; first < end; first += kPieceRows) {
      const int64_t count = std::min(kPieceRows, end - first);
      if (pieces.back().count > 0 && pieces.back().count + count > kPieceRows) pieces.emplace_back();
      pieces.back().add({b, first, count, length - (end - first) + 1});
    }
  }
  return pieces;
}

/// Groups consecutive sequences that share a run at the same position.
std::vector<RunQueries> run_queries_of(const QueryPiece& piece, const KvCache& cache) {
  std::vector<RunQueries> parts;
  std::vector<int64_t> column(piece.rows.size(), 0);
  for (size_t level = 0, found = 1; found > 0; ++level) {
    found = 0;
    for (size_t i = 0; i < piece.rows.size(); ++i) {
      const auto& rows = piece.rows[i];
      const auto& runs = cache.sequences[rows.sequence].runs;
      if (level >= runs.size()) continue;
      const auto& run = runs[level];
      const int64_t first = rows.first - piece.first, seen = rows.visible + rows.count - 1 - column[i];
      const int64_t keys = std::min(run.count, seen);
      auto* last = found > 0 ? &parts.back() : nullptr;
      if (last && *last->run == run && last->column == column[i] && last->first + last->count == first &&
          last->keys == keys)
        last->count += rows.count;
      else if (keys > 0)
        parts.push_back({&run, column[i], first, rows.count, keys});
      found += keys > 0;
      column[i] += run.count;
    }
  }
  return parts;
}

/// Buffers of one thread.
template <typename T>
struct AttentionScratch {
  kernels::Scratch<T> scores, widened;
};

/// Returns the keys (which = 0) or values (1) of a run for one head, [keys, P].
template <typename T>
const T* rows_of(const RunQueries& part, const KvShape& shape, int64_t layer, int64_t which, int64_t head,
                 AttentionScratch<T>& scratch) {
  const auto& memory = part.run->block->memory;
  const int64_t rows = memory.size(3), of_head = (layer * 2 + which) * shape.heads + head;
  const int64_t at = (of_head * rows + part.run->first_row()) * shape.width;
  if (shape.type != at::kBFloat16) return static_cast<const T*>(memory.const_data_ptr()) + at;
  T* widened = scratch.widened.at_least(part.keys * shape.width);
  kernels::widen(static_cast<const at::BFloat16*>(memory.const_data_ptr()) + at, at::kBFloat16, widened,
                 part.keys * shape.width);
  return widened;
}

bool use_gemm(const RunQueries& part) { return part.count >= kMinGemmRows && part.keys >= kMinGemmKeys; }

/// Computes attention for one piece and one head.
template <typename T>
class HeadPass {
 public:
  /// \param q  queries of the piece and of this head; rows of q and `out` are `stride` elements apart
  HeadPass(const QueryPiece& piece, std::span<const RunQueries> parts, const KvShape& shape, int64_t layer,
           int64_t kv_head, int64_t window, T soft_cap, AttentionScratch<T>& scratch)
      : piece_(piece),
        parts_(parts),
        shape_(shape),
        layer_(layer),
        head_(kv_head),
        window_(window),
        soft_cap_(soft_cap),
        scratch_(scratch),
        scores_(scratch.scores.at_least(piece.count * piece.longest)) {}

  void run(const T* q, T* out, int64_t stride) {
    for (const auto& part : parts_) score(part, q + part.first * stride, stride);
    for (const auto& rows : piece_.rows) weigh(rows);
    for (int64_t row = 0; row < piece_.count; ++row) std::fill_n(out + row * stride, shape_.width, T(0));
    for (const auto& part : parts_) add(part, out + part.first * stride, stride);
  }

 private:
  T* scores_of(const RunQueries& part) { return scores_ + part.first * piece_.longest + part.column; }

  void score(const RunQueries& part, const T* q, int64_t stride) {
    const int64_t width = shape_.width, next = piece_.longest;
    const T scale = static_cast<T>(1.0 / std::sqrt(static_cast<double>(width)));
    const T* keys = rows_of<T>(part, shape_, layer_, 0, head_, scratch_);
    T* scores = scores_of(part);
    if (use_gemm(part))
      return kernels::blas_gemm(kernels::Op::kNone, kernels::Op::kTranspose, part.count, part.keys, width, scale, q,
                                stride, keys, width, T(0), scores, next);
    for (int64_t row = 0; row < part.count; ++row) {
      kernels::dots(q + row * stride, keys, part.keys, width, scores + row * next);
      kernels::scaled_copy(scale, scores + row * next, scores + row * next, part.keys);
    }
  }

  /// Computes the softmax over the tokens that each query attends to, and zeros elsewhere.
  void weigh(const QueryRows& rows) {
    for (int64_t i = 0; i < rows.count; ++i) {
      T* scores = scores_ + (rows.first - piece_.first + i) * piece_.longest;
      const int64_t end = rows.visible + i, begin = window_ > 0 ? std::max<int64_t>(0, end - window_) : 0;
      T* seen = scores + begin;
      if (soft_cap_ > 0)
        for (T* score = seen; score < scores + end; ++score) *score = soft_cap_ * std::tanh(*score / soft_cap_);
      const T sum = kernels::exp_shifted(seen, kernels::max_of(seen, end - begin), end - begin);
      kernels::scaled_copy(T(1) / sum, seen, seen, end - begin);
      std::fill(scores, seen, T(0));
      std::fill(scores + end, scores + rows.visible + rows.count - 1, T(0));
    }
  }

  void add(const RunQueries& part, T* out, int64_t stride) {
    const int64_t width = shape_.width, next = piece_.longest;
    const T* values = rows_of<T>(part, shape_, layer_, 1, head_, scratch_);
    const T* weights = scores_of(part);
    if (use_gemm(part))
      return kernels::blas_gemm(kernels::Op::kNone, kernels::Op::kNone, part.count, width, part.keys, T(1), weights,
                                next, values, width, T(1), out, stride);
    for (int64_t row = 0; row < part.count; ++row)
      kernels::add_rows(weights + row * next, values, part.keys, width, out + row * stride);
  }

  const QueryPiece& piece_;
  std::span<const RunQueries> parts_;
  const KvShape& shape_;
  int64_t layer_, head_, window_;
  T soft_cap_;
  AttentionScratch<T>& scratch_;
  T* scores_;
};

template <typename T>
void attend(const at::Tensor& q_NHP, std::span<const int64_t> offsets, const KvCache& cache, int64_t layer,
            int64_t window, double soft_cap, at::Tensor& out_NHP) {
  const int64_t heads = q_NHP.size(1), width = q_NHP.size(2), groups = heads / cache.shape().heads;
  const auto pieces = pieces_of(offsets, cache);
  std::vector<std::vector<RunQueries>> parts;
  for (const auto& piece : pieces) parts.push_back(run_queries_of(piece, cache));
  const T* q = q_NHP.const_data_ptr<T>();
  T* out = out_NHP.mutable_data_ptr<T>();
  at::parallel_for(0, static_cast<int64_t>(pieces.size()) * heads, 1, [&](int64_t begin, int64_t end) {
    thread_local AttentionScratch<T> scratch;
    for (int64_t i = begin; i < end; ++i) {
      const auto& piece = pieces[static_cast<size_t>(i / heads)];
      const int64_t head = i % heads, at = (piece.first * heads + head) * width;
      HeadPass<T>(piece, parts[static_cast<size_t>(i / heads)], cache.shape(), layer, head / groups, window,
                  static_cast<T>(soft_cap), scratch)
          .run(q + at, out + at, heads * width);
    }
  });
}

template <typename T>
void store_row(const T* from, at::ScalarType type, char* to, int64_t width) {
  if (type == at::kBFloat16)
    kernels::narrow(from, reinterpret_cast<at::BFloat16*>(to), width);
  else
    std::copy_n(from, width, reinterpret_cast<T*>(to));
}

/// Writes the rows that extend() appended. They are in the last run.
template <typename T>
void store_sequence(const T* rows_LGP, int64_t tokens, const KvSequence& sequence, const KvShape& shape, int64_t layer,
                    int64_t which) {
  const auto& run = sequence.runs.back();
  const int64_t first = run.first_row() + run.count - tokens, memory_rows = run.block->memory.size(3);
  const auto bytes = static_cast<int64_t>(at::elementSize(shape.type));
  auto* all = static_cast<char*>(run.block->memory.mutable_data_ptr());
  for (int64_t head = 0; head < shape.heads; ++head) {
    const int64_t row = ((layer * 2 + which) * shape.heads + head) * memory_rows + first;
    for (int64_t t = 0; t < tokens; ++t)
      store_row(rows_LGP + (t * shape.heads + head) * shape.width, shape.type, all + (row + t) * shape.width * bytes,
                shape.width);
  }
}

template <typename T>
void store(const at::Tensor& k_TGP, const at::Tensor& v_TGP, std::span<const int64_t> offsets, const KvCache& cache,
           int64_t layer) {
  const T *k = k_TGP.const_data_ptr<T>(), *v = v_TGP.const_data_ptr<T>();
  const int64_t row = cache.shape().heads * cache.shape().width;
  at::parallel_for(0, static_cast<int64_t>(offsets.size()) - 1, 1, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<size_t>(begin); b < static_cast<size_t>(end); ++b) {
      const int64_t tokens = offsets[b + 1] - offsets[b];
      store_sequence(k + offsets[b] * row, tokens, cache.sequences[b], cache.shape(), layer, 0);
      store_sequence(v + offsets[b] * row, tokens, cache.sequences[b], cache.shape(), layer, 1);
    }
  });
}

void check_type(at::ScalarType activations, const KvShape& shape) {
  EK_CHECK(activations == shape.type || (activations == at::kFloat && shape.type == at::kBFloat16), kShape,
           "a key/value cache of ", shape.type, " with activations of ", activations);
}

}  // namespace

void store_keys(const at::Tensor& k_TGP, const at::Tensor& v_TGP, std::span<const int64_t> offsets,
                const KvCache& cache, int64_t layer) {
  check_type(k_TGP.scalar_type(), cache.shape());
  k_TGP.scalar_type() == at::kDouble ? store<double>(k_TGP, v_TGP, offsets, cache, layer)
                                     : store<float>(k_TGP, v_TGP, offsets, cache, layer);
}

at::Tensor cached_attention(const at::Tensor& q_NHP, std::span<const int64_t> offsets, const KvCache& cache,
                            int64_t layer, int64_t window, double soft_cap) {
  check_type(q_NHP.scalar_type(), cache.shape());
  auto out_NHP = at::empty_like(q_NHP);
  q_NHP.scalar_type() == at::kDouble ? attend<double>(q_NHP, offsets, cache, layer, window, soft_cap, out_NHP)
                                     : attend<float>(q_NHP, offsets, cache, layer, window, soft_cap, out_NHP);
  return out_NHP.view({q_NHP.size(0), -1});
}

}  // namespace evenkeel::nn
