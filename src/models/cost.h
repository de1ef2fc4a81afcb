/// \file  Counts FLOPs and parameters of a model from TokenWork and from its sites.
/// Convention, in FLOPs per multiply-add of a forward pass. Inference costs 2. Training costs 4 for a frozen linear
/// (forward and gradient of the input, no weight gradient), 6 for the score and value products of attention, and 6 for
/// LoRA factors. Attention counts the full square, without a causal discount. The head counts at all positions. The
/// paper of UB-SMoE defines no convention.
#pragma once

#include <cstdint>

#include "models/causal_lm.h"

namespace evenkeel::models {

/// Multiply-adds or FLOPs of a pass, by component.
struct ForwardCost {
  double attention_projections = 0, attention_scores = 0, router = 0, experts = 0, mlp = 0, head = 0;
  double lora_attention = 0, lora_experts = 0, lora_mlp = 0, lora_router = 0;
};

/// Describes a pass of `tokens` positions in sequences of `length` tokens.
struct CostShape {
  int64_t tokens = 256, length = 256;
  int64_t top_k = 0;  ///< experts per token; 0: ModelSpec::top_k
};

/// Returns the multiply-adds of one forward pass with LoRA of rank `rank` on `sites` (0: no LoRA).
ForwardCost forward_cost(const ModelSpec& spec, const CostShape& shape, const lora::Sites& sites = {},
                         int64_t rank = 0);

/// Returns the sum of the components.
double total(const ForwardCost& cost);
/// Converts multiply-adds of a forward pass to FLOPs of a forward and backward pass of LoRA training.
ForwardCost training_flops(const ForwardCost& multiply_adds);

/// Returns the number of LoRA parameters of rank `rank` on `sites`, all experts included.
int64_t lora_parameters(const lora::Sites& sites, int64_t rank);
/// Returns the number of LoRA parameters that one token uses: all of dense sites, and those of `top_k` experts of each
/// stack. Here `top_k` 0 means no expert.
int64_t activated_parameters(const lora::Sites& sites, int64_t rank, int64_t top_k);

}  // namespace evenkeel::models
