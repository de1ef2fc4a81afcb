/// \file  CUDA kernels that compute SwiGLU of experts. The reference is the sequence of LibTorch's operators in
/// nn/aten_engine/experts.cpp, which rounds each intermediate result; the kernels compute in float32 and round once.
/// Dimension names: S slots, F expert width, G = 2 F, T tokens, K selected. Both functions return nullopt if
/// device_for() is null (kernels.h) or `gate_up_SG` is not contiguous: use LibTorch's operators then.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace evenkeel::nn::cuda {

/// Adds the LoRA term to the outputs of gate and up, in place, and returns silu(g) u, [S, F] in their type.
/// \param gate_up_SG  g, then u \param lora_SG  undefined: none
std::optional<at::Tensor> swiglu(const at::Tensor& gate_up_SG, const at::Tensor& lora_SG);

/// The result of swiglu_backward().
struct SwigluGradients {
  at::Tensor gate_up_SG;  ///< dg, then du
  at::Tensor weights_S;   ///< dw, float32, in the order of the choices t K + k; undefined if not wanted
  at::Tensor hidden_SF;   ///< silu(g) u; undefined if not wanted
};
/// Computes the gradients of w silu(g) u, where w is the routing weight of a slot.
/// \param gate_up_SG  as swiglu() left it \param dh_SF, dh_lora_SF  dh is their sum, not yet multiplied by w; the
/// second may be undefined \param weights_S1  w, in the type of dh \param order_S  the choice of each slot
std::optional<SwigluGradients> swiglu_backward(const at::Tensor& gate_up_SG, const at::Tensor& dh_SF,
                                               const at::Tensor& dh_lora_SF, const at::Tensor& weights_S1,
                                               const at::Tensor& order_S, bool wants_weights, bool wants_hidden);

}  // namespace evenkeel::nn::cuda
