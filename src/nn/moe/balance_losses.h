/// \file  What makes routers spread their tokens: the losses of Switch Transformers and ST-MoE. Differentiable in the
/// router logits of `routing`; the counts are constants. Undefined where `routing` has no layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/routing.h"

namespace evenkeel {

/// E sum_i f_i P_i per layer, mean over layers; f_i is the share of token-choices that expert i got, P_i = mean_t
/// softmax(s_t)_i. 1 when balanced, whatever K. Source: Fedus et al. 2022, eq. 4; per layer as in megablocks.
at::Tensor load_balance_loss(const RoutingByLayer& routing);

/// All layers' tokens as if they were one layer's, and f_i in choices per token, as transformers computes it: K when
/// balanced. Imbalance that differs between layers cancels.
at::Tensor pooled_load_balance_loss(const RoutingByLayer& routing);

/// Mean over tokens and layers of logsumexp(s)^2. Source: Zoph et al. 2022, eq. 5.
at::Tensor router_z_loss(const RoutingByLayer& routing);

}  // namespace evenkeel
