/// \file  All low-rank factors beside a stack of matrices as one pair, so that they take two grouped products. The
/// first factors lie one below the other, the second ones side by side, each at the outputs it adds to; zeros fill
/// ranks up to the operators' alignment. Dimension names: E experts, R packed ranks, I in, O out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::aten {

/// One pair: delta W[first_out:] = scaling B A.
struct LoraPair {
  at::Tensor a;  ///< [E, r, I]
  at::Tensor b;  ///< [E, o, r]
  double scaling = 1;
  int64_t first_out = 0;
};

struct PackedFactors {
  at::Tensor a_ERI, b_EOR;  ///< undefined where nothing stands beside; b with the scalings
};

/// \param trained_parts  so many of `parts` get gradients: they come first
PackedFactors pack(std::span<const LoraPair> parts, size_t trained_parts, int64_t out, at::ScalarType type);

/// The columns that ranks of so many parts take, with what fills them up.
int64_t packed_ranks(std::span<const LoraPair> parts, at::ScalarType type);

/// Of the packed pair's gradients (their first `trained` columns) those of one part. \param first_rank  sum of the
/// ranks before it
at::Tensor part_of_a(const at::Tensor& da_ERI, const LoraPair& part, int64_t first_rank);
at::Tensor part_of_b(const at::Tensor& db_EOR, const LoraPair& part, int64_t first_rank);

}  // namespace evenkeel::aten
