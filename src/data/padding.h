/// \file  Pads packed batches to few different sizes. Dimension names: T tokens, R rows.
#pragma once

#include <cstdint>

#include "data/example.h"

namespace evenkeel::data {

/// Appends a last sequence of padding, so that T and R are multiples of `step`. It has at least one token, so that
/// every result has one sequence more than `batch`. It has no target and belongs to no micro-batch: `ends` stops before
/// it. Its gradients are zeros. All of its tokens have id 0 and position 0, which every model has.
PackedBatch padded(const PackedBatch& batch, int64_t step);

/// Returns the number of tokens of the last sequence if it is padding, otherwise 0.
int64_t padding_tokens(const PackedBatch& batch);

}  // namespace evenkeel::data
