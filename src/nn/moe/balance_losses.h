/// \file  Computes load-balancing losses of routers, from Switch Transformers and ST-MoE. They are differentiable with
/// respect to the router logits; the counts are constants. The result is undefined if `routing` has no layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/routing.h"

namespace evenkeel::nn {

/// Computes E sum_i f_i P_i for each layer and returns the mean over layers. f_i is the fraction of token-choices of
/// expert i, and P_i = mean over t of softmax(s_t)_i. A balanced router has loss 1 for every K. Source: Fedus et al.
/// 2022, eq. 4; per layer as in megablocks.
at::Tensor load_balance_loss(const RoutingByLayer& routing);

/// Computes the loss as Hugging Face transformers does: the tokens of all layers are pooled, and f_i counts choices per
/// token. A balanced router has loss K. Imbalances of different layers may cancel.
at::Tensor pooled_load_balance_loss(const RoutingByLayer& routing);

/// Returns the mean of logsumexp(s)^2 over tokens and layers. Source: Zoph et al. 2022, eq. 5.
at::Tensor router_z_loss(const RoutingByLayer& routing);

}  // namespace evenkeel::nn
