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

namespace evenkeel {

/// Computes the sum over micro-batches of `batch_size` rows of d(mean loss per target) / dW, for the weight W at `site`
/// of the bare base model. All rows use the routing options `router`. The weight itself needs no gradient: an adapter W
/// + B I with B = 0 has the same gradient in B.
/// \param shape  the site
/// \return [*, out, in] float32; zero for experts that no token chose
at::Tensor weight_gradient(const CausalLm& model, const std::string& site, const Site& shape,
                           std::span<const Example* const> rows, int64_t batch_size, const RouterOptions& router,
                           const Compute& compute = {});

/// Computes these sums for several sites in one forward and backward pass, equal to the bit to separate calls. It needs
/// memory for five times the gradients. For OLMoE-1B-7B, pass at most the sites of one layer.
std::map<std::string, at::Tensor> weight_gradients(const CausalLm& model, const Sites& sites,
                                                   std::span<const Example* const> rows, int64_t batch_size,
                                                   const RouterOptions& router, const Compute& compute = {});

}  // namespace evenkeel
