/// \file  Computes gradients of the task loss with respect to frozen weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "data/example.h"
#include "lora/adapter.h"
#include "models/causal_lm.h"

namespace evenkeel::train {

/// Rows over which gradients are summed, and the options of each pass over them.
struct GradientRows {
  std::span<const data::Example* const> rows;
  int64_t batch_size = 1;  ///< rows per micro-batch
  nn::RouterOptions router{};
  nn::Compute compute{};
};

/// Computes the sum over micro-batches of d(mean loss per target) / dW, for the weight W of each site of the bare base
/// model. One forward and backward pass over the rows computes all sites. The results are bit-identical to those of one
/// call per site. The weight itself needs no gradient: an adapter W + B I with B = 0 has the same gradient in B.
/// Memory: five times the gradients. For OLMoE-1B-7B, pass at most the sites of one layer.
/// \return [*, out, in] float32 by site; zero for experts that no token chose
std::map<std::string, at::Tensor> weight_gradients(const models::CausalLm& model, const lora::Sites& sites,
                                                   const GradientRows& of);

}  // namespace evenkeel::train
