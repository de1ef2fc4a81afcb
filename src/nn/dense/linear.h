/// \file  Computes a linear layer with a frozen weight and LoRA: y = x W^T + scaling (x A^T) core^T B^T. A change of
/// the base adds a second term of this form. W + BA is never materialised. Source: LoRA (Hu et al. 2021), eq. 3.
#pragma once

#include <ATen/core/Tensor.h>

#include "lora/adapter.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel::nn {

/// Applies the layer. Gradients of the factors are accumulated in place (nn/dense/gradients.h). Saved for backward: x
/// and x A^T.
/// \param x_TI  [T, in] float32 (float64 in tests)
/// \param w  [out, in]; gets a gradient only if its values require one (pre-training)
/// \param factors  adapter and change of the base, [r, in] and [out, r] each. The adapter and x get gradients. The
///                 change gets none and may be in 16 bits
/// \param products  selects the kernels
/// \return [T, out] in the type of x
/// \throws Error{kShape} if sizes disagree
at::Tensor linear(const at::Tensor& x_TI, const FrozenWeight& w, const lora::SiteFactors& factors = {},
                  const MatmulTable& products = {});

}  // namespace evenkeel::nn
