/// \file  Counts how often the layers of a pass select each expert. Dimension names: L layers, R rows, K selected, E
/// experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "nn/aten_engine/rows.h"
#include "nn/moe/router_options.h"

namespace evenkeel::nn::aten {

/// The experts that each layer selects.
struct LayerChoices {
  std::vector<std::string> layers;     ///< routing keys
  std::vector<at::Tensor> experts_RK;  ///< int64, one per layer
};

/// Sets RoutingStats::counts of each layer and micro-batch, with few operators for all layers.
/// \param choices_LRK  int64, the selected experts \param copies  the row of each token; undefined: no shared rows
/// \param into  one entry per micro-batch
void count_choices(std::span<const std::string> layers, const at::Tensor& choices_LRK, const RowIndex& copies,
                   int64_t experts, const data::PackedBatch& batch, std::span<RoutingByLayer> into);

}  // namespace evenkeel::nn::aten
