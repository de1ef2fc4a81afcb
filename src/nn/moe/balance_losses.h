/// \file  Computes load-balancing losses of routers, from Switch Transformers and ST-MoE. They are differentiable with
/// respect to the router logits; the counts are constants. All layers are computed together. A layer whose logits
/// require no gradient (RoutingStats::router_logits) would add a constant, which is left out. If no layer is left, all
/// functions return an undefined tensor. Dimension names: L layers with logits, T tokens, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "nn/moe/routing.h"

namespace evenkeel::nn {

/// The routing of one micro-batch in all layers, stacked. Several losses of one routing share it.
struct StackedRouting {
  StackedRouting(const RoutingByLayer& routing);  // NOLINT(google-explicit-constructor)

  at::Tensor logits_LTE;                 ///< raw scores, differentiable; undefined without layers
  at::Tensor counts_LE;                  ///< how often each expert was selected; type of the logits
  int64_t layers = 0;                    ///< number of all layers, including layers without logits
  std::vector<at::Tensor> all_counts_E;  ///< the integer counts of all layers
};

/// Computes E sum_i f_i P_i for each layer and returns the mean over layers. f_i is the fraction of token-choices that
/// select expert i, and P_i = mean over t of softmax(s_t)_i. A balanced router has loss 1 for every K. Source: Fedus et
/// al. 2022, eq. 4; per layer as in megablocks.
at::Tensor load_balance_loss(const StackedRouting& routing);

/// Computes the loss as Hugging Face transformers does: the tokens of all layers are pooled, and f_i is the number of
/// choices of expert i per token. A balanced router has loss K. Imbalances of different layers may cancel.
at::Tensor pooled_load_balance_loss(const StackedRouting& routing);

/// Returns the mean of logsumexp(s)^2 over tokens and layers. Source: Zoph et al. 2022, eq. 5.
at::Tensor router_z_loss(const StackedRouting& routing);

}  // namespace evenkeel::nn
