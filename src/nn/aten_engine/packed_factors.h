/// \file  Packs all LoRA factors of a stack of matrices into one pair, so that they need only two grouped matrix
/// products. The factors A are stacked as rows. The factors B are stacked as columns, each in the rows of the outputs
/// that it adds to. Ranks are padded with zeros to the alignment of the operators. Dimension names: E experts, R packed
/// ranks, I in, O out, o outputs of one pair.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel::nn::aten {

/// One pair of LoRA factors. It adds scaling B A to the rows [first_out, first_out + o) of W.
struct LoraPair {
  at::Tensor a;  ///< [E, r, I]
  at::Tensor b;  ///< [E, o, r]
  double scaling = 1;
  int64_t first_out = 0;  ///< a multiple of o
};

/// The factors of one stack. All pairs have the same E, I and o.
struct StackParts {
  std::vector<LoraPair> pairs;
  size_t trained = 0;  ///< number of pairs with gradients; they come first
};

/// The packed pair. B includes the scalings.
struct PackedFactors {
  at::Tensor a_ERI, b_EOR;  ///< undefined if there are no factors
};

/// Packs several stacks with equal E, I and o. The number of operators does not depend on the number of stacks, except
/// on a GPU for pairs of several types.
/// \param blocks  O / o \param type  type of the result \return one entry per stack, without autograd
std::vector<PackedFactors> pack(std::span<const StackParts> stacks, int64_t blocks, at::ScalarType type);

/// Returns the number of packed ranks of `pairs`, with padding.
int64_t packed_ranks(std::span<const LoraPair> pairs, at::ScalarType type);

/// These functions return a view of the gradients of the packed pair: the block of one trained pair `part`. The block
/// of A is the gradient of part.a. The block of B is the gradient of scaling B: the caller multiplies it by
/// part.scaling.
/// \param first_rank  sum of the ranks of the trained pairs before this one
at::Tensor part_of_a(const at::Tensor& da_ERI, const LoraPair& part, int64_t first_rank);
at::Tensor part_of_b(const at::Tensor& db_EOR, const LoraPair& part, int64_t first_rank);

}  // namespace evenkeel::nn::aten
