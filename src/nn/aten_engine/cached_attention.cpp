#include "nn/aten_engine/cached_attention.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "nn/aten_engine/attention.h"
#include "nn/dense/index.h"

namespace evenkeel::nn::aten {
namespace {

/// Sequences of different lengths, whose rows are stored one after the other.
struct Ragged {
  explicit Ragged(std::span<const int64_t> counts) : starts{0} {
    for (const int64_t count : counts) {
      starts.push_back(starts.back() + count);
      longest = std::max(longest, count);
    }
  }
  /// Returns the row of each padded position. Padding repeats the last row of a sequence.
  std::vector<int64_t> padded() const {
    std::vector<int64_t> rows;
    for (size_t b = 0; b + 1 < starts.size(); ++b)
      for (int64_t i = 0; i < longest; ++i) rows.push_back(std::min(starts[b] + i, starts[b + 1] - 1));
    return rows;
  }
  /// Returns the padded position of each row.
  std::vector<int64_t> unpadded_rows() const {
    std::vector<int64_t> all;
    for (size_t b = 0; b + 1 < starts.size(); ++b)
      for (int64_t i = 0; i < starts[b + 1] - starts[b]; ++i) all.push_back(static_cast<int64_t>(b) * longest + i);
    return all;
  }

  std::vector<int64_t> starts;
  int64_t longest = 0;
};

/// Copies the indices of queries to a device.
struct QueriesUpload {
  QueriesUpload(const Ragged& queries, std::span<const int64_t> lengths, IndexUpload& upload)
      : starts(upload.add(ints(queries.starts))),
        padded(upload.add(queries.padded())),
        unpadded(upload.add(queries.unpadded_rows())),
        longest(queries.longest) {
    std::vector<int64_t> all;
    for (size_t b = 0; b < lengths.size(); ++b) all.push_back(lengths[b] - (queries.starts[b + 1] - queries.starts[b]));
    before = upload.add(all);
  }
  size_t starts, padded, unpadded, before = 0;
  int64_t longest;
};

/// Returns keys and values with one axis for layers, kinds and heads, [L 2 G, rows, P]. On a GPU, a concatenation of
/// more than four axes is a copy per piece.
at::Tensor flattened(const at::Tensor& x_L2GMP) { return x_L2GMP.flatten(0, 2); }

/// Where new tokens are in the window, and in a memory of the cache.
struct StoredRows {
  at::Tensor memory;
  std::vector<int64_t> from{}, to{};
};

/// Adds the last `count` tokens of a sequence, which are at `position` in the window.
void add_rows(const KvRun& run, int64_t count, int64_t position, std::vector<StoredRows>& all) {
  const auto& memory = run.block->memory;
  auto into = std::find_if(all.begin(), all.end(), [&](const auto& rows) { return rows.memory.is_same(memory); });
  if (into == all.end()) into = all.insert(all.end(), {memory});
  for (int64_t i = 0; i < count; ++i) {
    into->from.push_back(position + i);
    into->to.push_back(run.first_row() + run.count - count + i);
  }
}

/// Returns the cached rows of all sequences, one after the other, [L, 2, G, M, P].
at::Tensor cached_rows(const KvCache& cache) {
  std::vector<at::Tensor> rows;
  for (const auto& sequence : cache.sequences)
    for (const auto& run : sequence.runs)
      rows.push_back(flattened(run.block->memory).narrow(1, run.first_row(), run.count));
  const auto& shape = cache.shape();
  return at::cat(rows, 1).view({shape.layers, 2, shape.heads, -1, shape.width});
}

}  // namespace

CacheWindow::CacheWindow(const KvCache& cache, std::span<const int64_t> offsets, bool last_only)
    : all_(cached_rows(cache)), sequences_(static_cast<int64_t>(cache.sequences.size())) {
  const auto lengths = cache.lengths();
  const Ragged keys(lengths);
  std::vector<int64_t> added, positions;
  std::vector<StoredRows> stored;
  for (size_t b = 0; b < lengths.size(); ++b) {
    added.push_back(offsets[b + 1] - offsets[b]);
    const int64_t first = keys.starts[b + 1] - added.back();
    add_rows(cache.sequences[b].runs.back(), added.back(), first, stored);
    for (int64_t i = 0; i < added.back(); ++i) positions.push_back(first + i);
  }
  IndexUpload upload;
  const size_t starts = upload.add(ints(keys.starts)), padded = upload.add(keys.padded()),
               new_rows = upload.add(positions);
  const QueriesUpload every(Ragged(added), lengths, upload);
  std::optional<QueriesUpload> last;
  if (last_only) last.emplace(Ragged(std::vector<int64_t>(lengths.size(), 1)), lengths, upload);
  std::vector<std::pair<size_t, size_t>> places;
  for (const auto& rows : stored) places.emplace_back(upload.add(rows.from), upload.add(rows.to));
  upload.send(all_.device());
  const auto sent = [&](const QueriesUpload& of) {
    return Queries{upload.sent_ints(of.starts), upload.sent(of.padded), upload.sent(of.unpadded),
                   upload.sent(of.before), of.longest};
  };
  key_starts_B1 = upload.sent_ints(starts);
  padded_keys_ = upload.sent(padded);
  new_N = upload.sent(new_rows);
  longest_ = keys.longest;
  every_ = sent(every);
  if (last) last_ = sent(*last);
  for (size_t i = 0; i < stored.size(); ++i)
    stored_.push_back({stored[i].memory, upload.sent(places[i].first), upload.sent(places[i].second)});
}

void CacheWindow::put(int64_t layer, const at::Tensor& k_NGP, const at::Tensor& v_NGP) {
  for (const int64_t which : {0, 1}) {
    const auto& rows = which == 0 ? k_NGP : v_NGP;
    copy_rows_once(all_[layer][which], 1, new_N, rows.to(all_.scalar_type()).transpose(0, 1));
  }
}

at::Tensor CacheWindow::attend(int64_t layer, const at::Tensor& q_NHP, bool only_last, int64_t window,
                               double soft_cap) const {
  const auto type = q_NHP.scalar_type();
  const auto k_MGP = all_[layer][0].transpose(0, 1).to(type), v_MGP = all_[layer][1].transpose(0, 1).to(type);
  const auto& queries = only_last ? last_ : every_;
  const auto out =
      has_flash(q_NHP) && soft_cap == 0
          ? std::get<0>(at::_flash_attention_forward(
                q_NHP, k_MGP, v_MGP, queries.starts_B1, key_starts_B1, queries.longest, longest_, 0.0,
                /*is_causal=*/true, /*return_debug_mask=*/false, 1.0 / std::sqrt(static_cast<double>(q_NHP.size(2))),
                tokens_before(window), tokens_after(window)))
          : padded_attention(q_NHP, k_MGP, v_MGP, queries, window, soft_cap);
  return out.reshape({q_NHP.size(0), -1});
}

// Query i of a sequence attends to the tokens before the first query and to i + 1 more.
at::Tensor CacheWindow::padded_attention(const at::Tensor& q_NHP, const at::Tensor& k_MGP, const at::Tensor& v_MGP,
                                         const Queries& queries, int64_t window, double soft_cap) const {
  const int64_t heads = q_NHP.size(1), group = heads / k_MGP.size(1);
  const auto heads_of = [&](const at::Tensor& x, const at::Tensor& index) {
    const auto padded = x.index_select(0, index).view({sequences_, -1, x.size(1), x.size(2)}).transpose(1, 2);
    return x.size(1) == heads ? padded : padded.repeat_interleave(group, 1, heads);
  };
  const auto index = new_N.options();
  const auto keys = at::arange(longest_, index);
  const auto itself = queries.before_B.view({-1, 1, 1, 1}) + at::arange(queries.longest, index).unsqueeze(1);
  auto visible = keys.le(itself);
  if (window > 0) visible.logical_and_(keys.gt(itself - window));
  const auto q = heads_of(q_NHP, queries.padded), k = heads_of(k_MGP, padded_keys_), v = heads_of(v_MGP, padded_keys_);
  const auto out =
      soft_cap > 0 ? capped_attention(q, k, v, visible, soft_cap) : at::scaled_dot_product_attention(q, k, v, visible);
  return out.transpose(1, 2).reshape({-1, heads, q_NHP.size(2)}).index_select(0, queries.unpadded);
}

void CacheWindow::write_back() const {
  for (const auto& [memory, from_N, to_N] : stored_)
    copy_rows_once(flattened(memory), 1, to_N, flattened(all_).index_select(1, from_N));
}

}  // namespace evenkeel::nn::aten
