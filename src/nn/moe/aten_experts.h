/// \file  Implements nn/moe/experts.h with LibTorch's operators, for any device. It uses sorted slots, grouped products
/// and gathers, and no atomics.
/// Dimension names: T tokens, K selected, D hidden, F expert width, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>

#include "nn/moe/aten_grouped.h"
#include "nn/moe/aten_packed_factors.h"
#include "nn/moe/routing.h"

namespace evenkeel::nn::aten {

/// The LoRA factors of one projection of all experts. Undefined tensors: no factors.
struct ProjectionFactors {
  LoraPair adapter, change;
};

/// The LoRA factors of a layer. The packed pairs hold their values; gradients are for the projections' adapters.
struct LayerFactors {
  std::array<ProjectionFactors, 3> projections{};  ///< gate, up and down
  PackedFactors gate_up{}, down{};                 ///< set by pack_layers()
  SlotNumbers numbers{};                           ///< optional
};

/// Sets the packed factors of several layers. Layers of equal sizes are packed together, some at a time, because their
/// scaled and converted copies are in memory meanwhile. \param type  of the products
void pack_layers(std::span<LayerFactors> layers, at::ScalarType type);

/// Computes nn::experts(). Saved for backward: x, and per token-choice the outputs of gate and up and x A^T.
/// \param gate_up  [E, 2 F, D], the rows of gate, then those of up; frozen \param down  [E, D, F]; frozen
/// \param factors  packed \param type  of the products
/// \return [T, D] in `type`
at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const at::Tensor& gate_up, const at::Tensor& down,
                   const LayerFactors& factors, at::ScalarType type);

}  // namespace evenkeel::nn::aten
