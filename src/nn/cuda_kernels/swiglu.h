/// \file  SwiGLU of experts by CUDA kernels. The reference is the sequence of LibTorch's operators in
/// nn/aten_engine/experts.cpp, which rounds each intermediate result; the kernels compute in float32 and round once.
/// Dimension names: S slots, F expert width, G = 2 F, T tokens, K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace evenkeel::nn::cuda {

/// Adds the LoRA term to the products of gate and up, in place, and returns silu(g) u, [S, F]. \return nothing where
/// operators have to compute
/// \param gate_up_SG  contiguous \param lora_SG  undefined: none
std::optional<at::Tensor> swiglu(const at::Tensor& gate_up_SG, const at::Tensor& lora_SG);

/// What swiglu_backward() gives.
struct SwigluGradients {
  at::Tensor gate_up_SG;
  at::Tensor weights_S;  ///< float32, by choice t K + k; undefined if not wanted
  at::Tensor hidden_SF;  ///< silu(g) u; undefined if not wanted
};
/// The gradients of w silu(g) u. \return nothing where operators have to compute
/// \param gate_up_SG  the sum that swiglu() left \param dh_SF, dh_lora_SF  the terms of dh, not yet weighted; the
/// second may be undefined \param weights_S1  w, in the type of the others \param order_S  the choice of each slot
std::optional<SwigluGradients> swiglu_backward(const at::Tensor& gate_up_SG, const at::Tensor& dh_SF,
                                               const at::Tensor& dh_lora_SF, const at::Tensor& weights_S1,
                                               const at::Tensor& order_S, bool wants_weights, bool wants_hidden);

}  // namespace evenkeel::nn::cuda
