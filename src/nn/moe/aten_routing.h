/// \file  Implements nn/moe/routing.h with LibTorch's operators, for any device. Dimension names: T tokens, E experts,
/// K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/router_options.h"

namespace evenkeel::nn::aten {

/// Computes nn::route() without the output scale. \param phi_E  [E] in the type of the logits; undefined: no modulation
/// \param over_selected  true: gate weights are a softmax over the selected experts; false: over all
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool over_selected);

/// Returns `value` at the experts of each token and !value elsewhere. \param experts  [..., K] \param count  E
/// \return [..., E] bool
at::Tensor marked(const at::Tensor& experts, int64_t count, bool value = true);

}  // namespace evenkeel::nn::aten
