/// \file  Where the tokens of a batch stand, on the device that computes: made once per batch, sent with one copy.
/// Dimension names: B sequences, T tokens, R rows, L tokens of the longest sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "nn/dense/aten_rows.h"

namespace evenkeel::aten {

struct Layout {
  at::Tensor ids_R, positions_R;  ///< int64
  std::vector<int64_t> offsets;   ///< [B + 1], as the batch has them
  int64_t longest = 0;            ///< L
  at::Tensor starts_B1;           ///< int32, offsets
  RowIndex copies;                ///< T tokens from R rows; undefined: each token has one of its own
  RowIndex firsts;                ///< R rows from T tokens, the first of each
  RowIndex padded;                ///< B L places from T tokens; behind a sequence its last token
  RowIndex unpadded;              ///< T tokens from B L places

  /// \param batch  on a processor
  static Layout of(const PackedBatch& batch, c10::Device device);
};

}  // namespace evenkeel::aten
