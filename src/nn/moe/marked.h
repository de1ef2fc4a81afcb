/// \file  Converts the selected experts of tokens to masks over all experts, on any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::nn {

/// Returns `value` at the experts of each token and !value elsewhere. REQUIRES that the experts of a token differ.
/// \param experts  [..., K] int64 \param count  the number of experts E \return [..., E] bool
at::Tensor marked(const at::Tensor& experts, int64_t count, bool value = true);

}  // namespace evenkeel::nn
