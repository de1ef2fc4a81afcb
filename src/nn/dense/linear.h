/// \file  Computes a linear layer with a frozen weight and LoRA: y = x W^T + scaling (x A^T) core^T B^T. A change of
/// the base adds a second term of this form. W + BA is never materialised. Source: LoRA (Hu et al. 2021), eq. 3.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "lora/adapter.h"
#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel::nn {

/// Applies the layer. Gradients of the factors are accumulated in place (nn/dense/gradients.h). Saved for backward: x
/// and x A^T.
/// \param x_TI  [T, in] float32 (float64 in tests)
/// \param w  [out, in]; gets a gradient only if its values require one (pre-training)
/// \param factors  adapter and change of the base, [r, in] and [out, r] each. The adapter and x get gradients. The
///                 change gets none and may be in 16 bits
/// \param compute  selects the engine and the kernels
/// \return [T, out] in the type of x; engine aten: in the type of the products
/// \throws Error{kShape} if sizes disagree; kConfig for an int8 weight with engine aten
at::Tensor linear(const at::Tensor& x_TI, const FrozenWeight& w, const lora::SiteFactors& factors = {},
                  const Compute& compute = {});

/// A weight and its low-rank terms. Does not own the weight.
struct LinearLayer {
  const FrozenWeight* weight;
  lora::SiteFactors factors{};
  lora::SiteFactors converted{};  ///< the same in the type of the products, if known (aten::converted_factors)
};
/// Applies several layers to one input, as linear() does. With engine aten they are one autograd node, which sums the
/// gradients of the input by itself.
std::vector<at::Tensor> linears(const at::Tensor& x_TI, std::span<const LinearLayer> layers, const Compute& compute);

}  // namespace evenkeel::nn
