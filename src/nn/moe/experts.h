/// \file  Computes the experts of a sparse MoE layer as one autograd node: SwiGLU experts with LoRA on each projection,
/// and the weighted sum of their outputs. Dimension names: T tokens, K selected, D hidden, F expert width, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "lora/adapter.h"
#include "nn/compute/matmul_table.h"
#include "nn/dense/frozen_weight.h"
#include "nn/moe/routing.h"

namespace evenkeel::nn {

/// The weights of all experts, E entries each: gate and up [F, D], down [D, F]. Each can be a view of the memory-mapped
/// checkpoint. Engine aten requires them to be views of two stacks.
struct ExpertWeights {
  std::vector<FrozenWeight> gate, up, down;
  at::Tensor gate_up_stack{}, down_stack{};  ///< [E, 2 F, D] (gate, then up) and [E, D, F]; undefined: no stacks
};

/// The LoRA factors of each projection, stacked: a [E, r, in], b [E, out, r]. The factors of a change of the base may
/// be in 16 bits, and may be shared by all experts (a stride of 0).
struct ExpertFactors {
  lora::SiteFactors gate{}, up{}, down{};
};

/// Computes y_t = sum over k of weights[t, k] * down_e(silu(gate_e(x_t)) * up_e(x_t)) with e = experts[t, k]. x, the
/// routing weights and the adapters get gradients (nn/dense/gradients.h). Expert weights get one if they require it; an
/// expert without a token gets zeros. Changes of the base get none. Saved for backward, if a gradient is needed: x, and
/// per token-choice the outputs of gate and up and x A^T; the rest is recomputed. It uses all threads of the pool;
/// experts write to separate memory, so the number of threads changes bits only if it does so for the kernels in
/// `products`.
/// \param x_TD  [T, D], float32 (float64 in tests) \param products  selects the kernels \return [T, D]
/// \throws Error{kShape} if sizes disagree or an expert is out of range
at::Tensor experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights,
                   const ExpertFactors& factors, const MatmulTable& products = {});

/// Checks the sizes of the operands of experts(). \throws Error{kShape} naming what disagrees
void check_experts(const at::Tensor& x_TD, const Routing& routing, const ExpertWeights& weights);
/// Checks that the factors of a projection are a [E, r, in] and b [E, out, r]. \throws Error{kShape} naming the sizes
void check_expert_factors(const lora::LoraFactors& lora, std::string_view projection, int64_t experts, int64_t in,
                          int64_t out);

}  // namespace evenkeel::nn
