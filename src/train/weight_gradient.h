/// \file  Gradients of the task loss with respect to frozen weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "data/example.h"
#include "lora/adapter.h"
#include "models/causal_lm.h"

namespace evenkeel {

/// Sum over micro-batches of `batch_size` rows of d(mean loss per target) / dW for the bare base model's weight at
/// `site`, all rows routed by `router`. An adapter W + B I with B = 0 has exactly this gradient in B, so no weight
/// needs one. \param compute  who computes
/// \return [*, out, in] float32; zero for experts that no token chose.
at::Tensor weight_gradient(const CausalLm& model, const std::string& site, const Site& shape,
                           std::span<const Example* const> rows, int64_t batch_size, const RouterOptions& router,
                           const Compute& compute = {});

/// The same of several sites in one forward and backward pass, to the bit: probes that are zero change nothing for each
/// other. Memory: five times the gradients, so at OLMoE-1B-7B's size no more than the sites of a layer.
std::map<std::string, at::Tensor> weight_gradients(const CausalLm& model, const Sites& sites,
                                                   std::span<const Example* const> rows, int64_t batch_size,
                                                   const RouterOptions& router, const Compute& compute = {});

}  // namespace evenkeel
