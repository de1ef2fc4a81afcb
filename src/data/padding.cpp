#include "data/padding.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace evenkeel::data {
namespace {

/// Returns how many must be added to `count`, at least one, for a multiple of `step`.
int64_t missing(int64_t count, int64_t step) { return step - count % step; }

/// Returns the row of each token of the padding, which has as many rows or fewer.
at::Tensor padding_rows(int64_t first_row, int64_t rows, int64_t tokens) {
  return at::arange(tokens, at::kLong).clamp_max_(rows - 1) + first_row;
}

}  // namespace

PackedBatch padded(const PackedBatch& batch, int64_t step) {
  PackedBatch result = batch;
  result.ends = batch.micro_batch_ends();
  const int64_t rows = missing(batch.ids.size(0), step);
  int64_t tokens = missing(batch.tokens(), step);
  if (tokens < rows) tokens += step;
  const auto none = at::zeros({rows}, at::kLong);
  result.ids = at::cat({batch.ids, none});
  result.positions = at::cat({batch.positions, none});
  if (batch.rows_T.defined()) result.rows_T = at::cat({batch.rows_T, padding_rows(batch.ids.size(0), rows, tokens)});
  result.offsets.push_back(batch.tokens() + tokens);
  return result;
}

int64_t padding_tokens(const PackedBatch& batch) { return batch.tokens() - batch.micro_batch_ends().back().tokens; }

}  // namespace evenkeel::data
