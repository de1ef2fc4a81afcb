/// \file  Computes keys of forward passes. Passes with equal keys may replay one CUDA graph (nn/engine/pass_graphs.h).
#pragma once

#include <cstdint>
#include <vector>

#include "models/causal_lm.h"

namespace evenkeel::models {

/// Returns the numbers, addresses and sizes that the operators of a forward and backward pass depend on: of the
/// factors, of their gradients, and of the router's options. Passes of one model with equal keys and batches of equal
/// sizes start the same operators at the same addresses.
/// \return empty if a pass cannot be recorded, because a trained tensor has no gradient that could be added to in place
std::vector<int64_t> graph_key(const ForwardOptions& options);

}  // namespace evenkeel::models
