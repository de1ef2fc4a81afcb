/// \file  nn/moe/experts.h by LibTorch's operators, on any device: sorted slots, grouped products, gathers; no atomics.
/// Dimension names: T tokens, K selected, D hidden, F expert width, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

#include "nn/moe/aten_packed_factors.h"
#include "nn/moe/routing.h"

namespace evenkeel::aten {

/// What stands beside one projection of all experts: tensors undefined where there is nothing.
struct ProjectionFactors {
  LoraPair adapter, change;
};

/// As evenkeel::experts(). Kept for backward: x, per token-choice the outputs of gate and up and the adapters' ranks.
/// \param gate_up  [E, 2 F, D], gate above up; \param down  [E, D, F]; both frozen
/// \param beside  of gate, up and down
/// \return [T, D] of `type`
at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const at::Tensor& gate_up, const at::Tensor& down,
                   const std::array<ProjectionFactors, 3>& beside, at::ScalarType type);

}  // namespace evenkeel::aten
