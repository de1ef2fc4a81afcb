/// \file  Expert selection and gating of a sparse MoE layer, with UB-SMoE's dynamic modulated routing as plain data.
/// Dimension names: T tokens, E experts, K selected, N candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/compute/compute.h"
#include "nn/moe/router_options.h"

namespace evenkeel {

/// Routes T tokens. s = logits, m = s + phi where the mode says so, selection top-K of m, weights from m
/// (docs/methods.md).
/// \param logits  [T, E] float32 or float64; \param phi  [E] or undefined; \param norm_topk_prob  the checkpoint's flag
/// \throws kConfig when top_k is not in 1 .. E.
Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool norm_topk_prob,
              const Compute& compute = {});

}  // namespace evenkeel
