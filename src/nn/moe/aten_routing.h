/// \file  nn/moe/routing.h by LibTorch's operators, on any device. Dimension names: T tokens, E experts, K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/router_options.h"

namespace evenkeel::aten {

/// As evenkeel::route(), without the output scale. \param phi  [E] of the logits' type, where options modulate;
/// undefined: nothing does. \param over_selected  gate weights are a softmax over the selected experts, else over all
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool over_selected);

/// Token-choices of each expert. \param experts  [T, K] \return [E] int64
at::Tensor counts_of(const at::Tensor& experts_TK, int64_t experts);

}  // namespace evenkeel::aten
