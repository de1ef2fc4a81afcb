/// \file  Selects experts and computes gate weights of a sparse MoE layer, with UB-SMoE's dynamic modulated routing.
/// Dimension names: T tokens, E experts, K selected. N_p is the number of candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/moe/router_options.h"

namespace evenkeel::nn {

/// Routes T tokens. The scores are s = logits. m is s + phi for the experts that the mode selects, and s for the
/// others. kCandidate selects the top K experts of m; kPreserve selects the top min(K, N_p) experts of s first, then
/// the best others of m. The gate weights are computed from m, or from s with RouterOptions::raw_gates, and multiplied
/// by the output scale (docs/methods.md).
/// \param logits_TE  [T, E] float32 or float64 \param phi_E  [E] or undefined
/// \param norm_topk_prob  the checkpoint's flag
/// \throws kConfig if top_k is not in 1 .. E or num_candidates is not in 0 .. E; kShape if sizes disagree
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool norm_topk_prob);
/// Returns whether phi changes the scores: there is one, and it has candidates.
bool modulates(const RouterOptions& options, const at::Tensor& phi_E);
/// Multiplies gate weights by the output scale of the options, if there is one.
at::Tensor with_output_scale(const at::Tensor& weights_TK, const RouterOptions& options);
/// Checks the arguments of route(). \throws as route()
void check_router(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E);

}  // namespace evenkeel::nn
