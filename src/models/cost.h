/// \file  FLOPs and parameter counts from what a model's leaves say of themselves (TokenWork) and from sites alone.
/// Convention: 2 FLOPs per multiply-add; a frozen linear costs its forward and the gradient of its input (4), never a
/// weight gradient; attention's score and value products 6, full square without a causal discount; LoRA factors 6; the
/// head at all positions. The paper behind UB-SMoE states no convention of its own.
#pragma once

#include <cstdint>

#include "models/causal_lm.h"

namespace evenkeel {

/// Multiply-adds of one forward pass, by component.
struct ForwardCost {
  double attention_projections = 0, attention_scores = 0, router = 0, experts = 0, mlp = 0, head = 0;
  double lora_attention = 0, lora_experts = 0, lora_mlp = 0, lora_router = 0;
};

/// Shape of a run of `tokens` positions in sequences of `length`.
struct CostShape {
  int64_t tokens = 256, length = 256;
  int64_t top_k = 0;  ///< 0: the checkpoint's own
};

/// Multiply-adds of one forward pass of that model with LoRA of `rank` on `sites` (rank 0: none).
ForwardCost forward_cost(const ModelSpec& spec, const CostShape& shape, const Sites& sites = {}, int64_t rank = 0);

/// Sum over the components.
double total(const ForwardCost& cost);
/// Multiply-adds to FLOPs, by component: a forward pass, and a forward and backward pass of LoRA training.
ForwardCost inference_flops(const ForwardCost& multiply_adds);
ForwardCost training_flops(const ForwardCost& multiply_adds);

/// LoRA parameters of `rank` on `sites`: all that travel, and those one token activates (top_k experts of each stack).
int64_t lora_parameters(const Sites& sites, int64_t rank);
int64_t activated_parameters(const Sites& sites, int64_t rank, int64_t top_k);

}  // namespace evenkeel
