#include "nn/cuda_kernels/swiglu.h"

#include <ATen/ATen.h>

#include "nn/cuda_kernels/kernels.h"
#include "nn/cuda_kernels/source/arguments.h"

namespace evenkeel::nn::cuda {

std::optional<at::Tensor> swiglu(const at::Tensor& gate_up_SG, const at::Tensor& lora_SG) {
  const auto* device = device_for(Kernel::kSwiglu, gate_up_SG);
  if (device == nullptr || !gate_up_SG.is_contiguous()) return std::nullopt;  // the sum stays where it is
  const auto lora = lora_SG.defined() ? lora_SG.contiguous() : lora_SG;
  const int64_t slots = gate_up_SG.size(0), width = gate_up_SG.size(1) / 2;
  const auto type = gate_up_SG.scalar_type();
  auto hidden_SF = at::empty({slots, width}, gate_up_SG.options());
  launch(*device, "swiglu_forward", type, can_be_wide(width, type, {&gate_up_SG, &lora, &hidden_SF}), {slots},
         SwigluForward{gate_up_SG.data_ptr(), address<void>(lora), hidden_SF.data_ptr(), static_cast<int>(width)});
  return hidden_SF;
}

std::optional<SwigluGradients> swiglu_backward(const at::Tensor& gate_up_SG, const at::Tensor& dh_SF,
                                               const at::Tensor& dh_lora_SF, const at::Tensor& weights_S1,
                                               const at::Tensor& order_S, bool wants_weights, bool wants_hidden) {
  const auto* device = device_for(Kernel::kSwiglu, gate_up_SG);
  if (device == nullptr || !gate_up_SG.is_contiguous()) return std::nullopt;
  const auto dh = dh_SF.contiguous(), dh_lora = dh_lora_SF.defined() ? dh_lora_SF.contiguous() : dh_lora_SF;
  const int64_t slots = dh_SF.size(0), width = dh_SF.size(1);
  const auto type = dh_SF.scalar_type();
  SwigluGradients out{.gate_up_SG = at::empty_like(gate_up_SG),
                      .weights_S = wants_weights ? at::empty({slots}, dh_SF.options().dtype(at::kFloat)) : at::Tensor(),
                      .hidden_SF = wants_hidden ? at::empty_like(dh) : at::Tensor()};
  const bool wide = can_be_wide(width, type, {&gate_up_SG, &dh, &dh_lora, &out.gate_up_SG, &out.hidden_SF});
  launch(*device, "swiglu_backward", type, wide, {slots},
         SwigluBackward{gate_up_SG.data_ptr(), dh.data_ptr(), address<void>(dh_lora), weights_S1.data_ptr(),
                        address<long long>(order_S), out.gate_up_SG.data_ptr(), address<float>(out.weights_S),
                        address<void>(out.hidden_SF), static_cast<int>(width)});
  return out;
}

}  // namespace evenkeel::nn::cuda
