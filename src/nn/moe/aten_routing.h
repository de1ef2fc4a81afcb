/// \file  Implements nn/moe/routing.h with LibTorch's operators, for any device. Dimension names: T tokens, E experts,
/// K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/router_options.h"

namespace evenkeel::nn::aten {

/// Computes nn::route() without the output scale. \param phi_E  [E] in the type of the logits; undefined: no modulation
/// \param over_selected  true: gate weights are a softmax over the selected experts; false: over all
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool over_selected);

/// Counts the token-choices of each expert. \param experts  [T, K] \return [E] int64
at::Tensor counts_of(const at::Tensor& experts_TK, int64_t experts);

}  // namespace evenkeel::nn::aten
