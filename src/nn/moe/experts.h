/// \file  The expert half of a sparse MoE layer as one autograd node: tokens sorted by expert once, SwiGLU per expert,
/// LoRA beside each projection, gate-weighted sum. Dimension names: T tokens, K selected, D hidden, F expert width, E
/// experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lora/adapter.h"
#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"
#include "nn/moe/routing.h"

namespace evenkeel {

/// One weight per expert, so that each can be a view of the memory-mapped checkpoint. [E] x [F, D], [F, D], [D, F].
/// Engine aten wants them to be views of two stacks.
struct ExpertWeights {
  std::vector<FrozenWeight> gate, up, down;
  at::Tensor gate_up_stack{}, down_stack{};  ///< [E, 2 F, D], gate above up, and [E, D, F]; undefined: each by itself
};

/// What stands beside each projection. Factors are stacked: a [E, r, in], b [E, out, r]; those of a change may be in 16
/// bits, and one for all experts (a stride of 0).
struct ExpertFactors {
  SiteFactors gate{}, up{}, down{};
};

/// y_t = sum_k weights[t, k] * down_e(silu(gate_e(x_t)) * up_e(x_t)),  e = experts[t, k].
/// Gradients flow to x, the routing weights, the adapters (not to the changes of the base; nn/dense/gradients.h) and,
/// when they require one, the expert weights. Experts without a token get a zero gradient, not none. Kept for backward
/// where there will be one: x, and per token-choice the outputs of gate and up and r numbers per adapter; the rest is
/// recomputed. Experts go to whichever thread is free, and write to places of their own: bits depend on the number of
/// threads as far as `compute` says.
/// \param x  [T, D] float32 (float64 in tests). \param compute  who multiplies with `weights`.
/// \return [T, D]
at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const ExpertFactors& beside, const Compute& compute = {});

}  // namespace evenkeel
