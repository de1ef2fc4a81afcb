/// \file  A frozen linear with low-rank factors beside it: y = x W^T + scaling (x A^T) (core^T) B^T for the adapter,
/// and the same for a standing change of the base. Never materialises W + BA. Source: LoRA (Hu et al. 2021), eq. 3.
#pragma once

#include <ATen/core/Tensor.h>

#include "lora/adapter.h"
#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel {

/// Gradients of the factors are added to those that are there (nn/dense/gradients.h). Kept for backward: x and x A^T.
/// \param x     [T, in] float32 (float64 in tests)
/// \param w     [out, in]; gets a gradient only if its values require one (pre-training)
/// \param beside  factors [r, in], [out, r]; the adapter's and x get gradients, the change's, which may be in 16 bits,
///                do not
/// \param compute  who multiplies
/// \return      [T, out], of x's type; engine aten: of the type that products are made in
at::Tensor linear(const at::Tensor& x_TI, const FrozenWeight& w, const SiteFactors& beside = {},
                  const Compute& compute = {});

}  // namespace evenkeel
