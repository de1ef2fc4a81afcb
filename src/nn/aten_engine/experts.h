/// \file  Implements nn/moe/experts.h with LibTorch's operators, for any device. It sorts the T K token-choices (slots)
/// by expert and uses grouped matrix products and gathers. It uses no atomics, so that results are reproducible.
/// Dimension names: T tokens, K selected, D hidden, F expert width, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <span>

#include "nn/aten_engine/grouped.h"
#include "nn/aten_engine/packed_factors.h"
#include "nn/moe/experts.h"

namespace evenkeel::nn::aten {

/// The LoRA factors of one projection of all experts. Undefined tensors: no factors.
struct ProjectionFactors {
  LoraPair adapter, change;
};

/// The LoRA factors of a layer. experts() computes with the packed copies `gate_up` and `down`. Gradients go to
/// `projections[i].adapter`; the copies and `projections[i].change` get none.
struct LayerFactors {
  std::array<ProjectionFactors, 3> projections{};  ///< gate, up and down
  PackedFactors gate_up{}, down{};                 ///< set by pack_layers()
};

/// Returns the factors of a layer, not yet packed. \throws Error{kShape} if sizes disagree
LayerFactors layer_factors(const ExpertWeights& weights, const ExpertFactors& factors);

/// Sets the packed factors of several layers. Up to four layers of equal sizes are packed by the same operators; more
/// would need too much memory for scaled and converted copies of their factors.
/// \param type  type of the matrix products
void pack_layers(std::span<LayerFactors> layers, at::ScalarType type);

/// Computes nn::experts(). Saved for backward: x, and per token-choice the outputs of gate and up and x A^T.
/// \param weights  in two stacks; matrices that require a gradient get one, zeros for an expert without a token
/// \param factors  packed by pack_layers() with the same `type` after the last change of the adapters. A layer that was
/// not packed is computed without LoRA.
/// \param numbers  index tensors that all layers of a pass share; empty: the call makes its own
/// \param type  type of the matrix products
/// \return [T, D] in `type` \throws kShape if sizes disagree; kInternal if the weights lie in no stacks
at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const LayerFactors& factors, const SlotNumbers& numbers, at::ScalarType type);

}  // namespace evenkeel::nn::aten
