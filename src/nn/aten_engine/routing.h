/// \file  Implements nn/moe/routing.h with LibTorch's operators, for any device. Dimension names: T tokens, E experts,
/// K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/router_options.h"

namespace evenkeel::nn::aten {

/// Computes nn::route().
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool norm_topk_prob);

}  // namespace evenkeel::nn::aten
