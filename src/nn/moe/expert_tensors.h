/// \file  Computes norms and weighted sums over the tensors of experts, on the CPU. Each tensor is a stack [E, ...] of
/// float32 (float64 in tests). Dimension name: E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>

namespace evenkeel::nn {

/// Returns the norm of each expert over all its tensors, with sums in float64. \return [E] float64
at::Tensor expert_norms(std::span<const at::Tensor> tensors);

/// How the terms of each expert of one layer are scaled: share * clamp(scale * term, -bound, bound).
struct ExpertScales {
  at::Tensor share_E, scale_E;  ///< float64
  double bound = 0;
};
/// Adds `factor` times the scaled terms to the targets, in place. Experts run in parallel. Experts with a share of 0
/// are skipped.
/// \return [E] float64, norms of the scaled terms over an expert's tensors, without `factor`
at::Tensor add_expert_terms(std::span<const at::Tensor> targets, std::span<const at::Tensor> terms,
                            const ExpertScales& scales, double factor);

}  // namespace evenkeel::nn
