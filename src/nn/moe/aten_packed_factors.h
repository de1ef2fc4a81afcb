/// \file  Packs all LoRA factors of a stack of matrices into one pair, so that they need only two grouped products. The
/// factors A are stacked as rows. The factors B are stacked as columns, each at the outputs that it adds to. Ranks are
/// padded with zeros to the alignment of the operators. Dimension names: E experts, R packed ranks, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::nn::aten {

/// One pair of LoRA factors. It adds scaling B A to W from row first_out on.
struct LoraPair {
  at::Tensor a;  ///< [E, r, I]
  at::Tensor b;  ///< [E, o, r]
  double scaling = 1;
  int64_t first_out = 0;
};

/// The packed pair. B includes the scalings.
struct PackedFactors {
  at::Tensor a_ERI, b_EOR;  ///< undefined if there are no factors
};

/// Packs `parts`. \param trained_parts  the number of parts with gradients; they must come first
PackedFactors pack(std::span<const LoraPair> parts, size_t trained_parts, int64_t out, at::ScalarType type);

/// Returns the number of packed ranks of `parts`, with padding.
int64_t packed_ranks(std::span<const LoraPair> parts, at::ScalarType type);

/// Return the gradient of one part, as a view of the gradient of the packed factor. \param first_rank  the sum of the
/// ranks of the parts before it
at::Tensor part_of_a(const at::Tensor& da_ERI, const LoraPair& part, int64_t first_rank);
at::Tensor part_of_b(const at::Tensor& db_EOR, const LoraPair& part, int64_t first_rank);

}  // namespace evenkeel::nn::aten
