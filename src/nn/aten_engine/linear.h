/// \file  Implements nn/dense/linear.h with LibTorch's operators, for any device.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "lora/adapter.h"
#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"

namespace evenkeel::nn::aten {

/// Returns the type of the matrix products: `compute.inner`, or the type of `x` if `compute.inner` is kFloat.
at::ScalarType inner_type(const at::Tensor& x, const Compute& compute);

/// A pair of LoRA factors. Undefined tensors: no factors.
struct LinearFactors {
  at::Tensor a_RI, b_OR;
  double scaling = 1;
  /// The factors in the type of the matrix products; undefined: not yet converted.
  at::Tensor converted_a_RI{}, converted_b_OR{};
};

/// Converts the factors of all dense layers to `type` with one operator, without autograd. Left out are factors that
/// have this type already, factors with a core, and factors of experts. \param state  null: no factors
lora::AdapterState converted_factors(const lora::AdapterState* state, at::ScalarType type);

/// A weight with the factors of the adapter and of a change of the base, which gets no gradient.
struct Projection {
  at::Tensor w_OI;  ///< gets a gradient if it requires one
  LinearFactors adapter{}, change{};
  bool normed = false;  ///< LinearLayer::normed
};

/// Returns the weight and the factors of a layer. The tensors share the storage of the arguments; only a core is
/// multiplied into B.
/// \param converted  the same factors in the type of the matrix products; null: not converted yet
/// \throws Error{kShape} as check_factor_shapes(); kConfig for an int8 weight
Projection projection_of(const FrozenWeight& weight, const lora::SiteFactors& factors,
                         const lora::SiteFactors& converted);

/// Computes y = x W^T + scaling (x A^T) B^T, plus the term of the change, for each projection of one input, as one
/// autograd node. Weights that lie in one stack are multiplied together (nn/aten_engine/products.h). The matrix
/// products of the backward pass add up the gradients of the input. Saved for backward: x, x A^T and the factors in
/// `type`.
/// \param x_TI  [T, I], any float type \param type  type of the matrix products \return [T, O] in `type` each
std::vector<at::Tensor> linears(const at::Tensor& x_TI, std::span<const Projection> projections, at::ScalarType type);

}  // namespace evenkeel::nn::aten
