/// \file  Defines the index tensors of a batch on the compute device. They are built once per batch and sent with one
/// copy. Dimension names: B sequences, T tokens, R rows, L tokens of the longest sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "nn/dense/aten_rows.h"

namespace evenkeel::nn::aten {

/// The layout of a batch of packed sequences.
struct Layout {
  at::Tensor ids_R, positions_R;  ///< int64, token ids and positions of the rows
  std::vector<int64_t> offsets;   ///< [B + 1], first token of each sequence
  int64_t longest = 0;            ///< L
  at::Tensor starts_B1;           ///< int32, the same as offsets
  RowIndex copies;                ///< gathers T tokens from R rows; undefined: no shared rows, T = R
  RowIndex firsts;                ///< gathers R rows from T tokens: the first token of each row
  RowIndex padded;                ///< gathers B L padded positions from T tokens; padding repeats the last token
  RowIndex unpadded;              ///< gathers T tokens from B L padded positions

  /// Builds the layout. \param batch  on the CPU
  static Layout of(const data::PackedBatch& batch, c10::Device device);
};

}  // namespace evenkeel::nn::aten
