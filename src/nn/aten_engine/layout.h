/// \file  Defines the index tensors and the rotary table of a batch on the compute device. They are built on the CPU
/// once per batch and sent with one copy. Dimension names: B sequences, T tokens, R rows, L tokens of the longest
/// sequence, P rotated elements of a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/example.h"
#include "nn/aten_engine/rows.h"
#include "nn/attention/rotary.h"

namespace evenkeel::nn::aten {

/// The layout of a batch of packed sequences.
struct Layout {
  at::Tensor ids_R;                    ///< int64, token ids of the rows
  std::vector<RotaryTable> rotary;     ///< [R, P] each, at the positions of the rows; the same numbers on every device
  std::vector<at::Tensor> signed_sin;  ///< [R, P] of each table: the sines with a minus sign in the first half
  std::vector<int64_t> offsets;        ///< [B + 1], first token of each sequence
  int64_t longest = 0;                 ///< L: no sequence has more tokens
  at::Tensor starts_B1;                ///< int32, the same as offsets
  RowIndex copies;                     ///< gathers T tokens from R rows; undefined: no shared rows, T = R
  RowIndex firsts;                     ///< gathers R rows from T tokens: the first token of each row
  RowIndex padded;                     ///< gathers B L padded positions from T tokens; padding repeats the last token
  RowIndex unpadded;                   ///< gathers T tokens from B L padded positions

  /// Builds the layout. \param batch  on the CPU \param head_width  P \param ropes  one for each rotary table
  /// \param longest_step  L is rounded up to a multiple of it, so that few different L occur
  static Layout of(const data::PackedBatch& batch, int64_t head_width, std::span<const RopeSpec> ropes,
                   c10::Device device, int64_t longest_step = 1);
  /// Returns all tensors that are defined, in the same order for layouts of equal sizes.
  std::vector<at::Tensor> tensors() const;
  /// Returns a copy with memory of its own.
  Layout copy() const;
};

}  // namespace evenkeel::nn::aten
