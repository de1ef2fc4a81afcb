/// \file  Declares the tensor operations of an optimiser step with LibTorch's operators, on any device.
#pragma once

#include "nn/aten_engine/adamw.h"
#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn::aten {

/// Computes all experts of a layer at once. It never waits for the device.
class AtenStepArithmetic final : public StepArithmetic {
 public:
  at::Tensor expert_norms(std::span<const at::Tensor> tensors) const override;
  at::Tensor add_terms(std::span<const ExpertTerms> layers, const TermScales& scales, const at::Tensor& norm_LE,
                       double factor) const override;
  at::Tensor limit_norm(std::vector<at::Tensor> gradients, double limit) const override;
  void clip_norm(std::vector<at::Tensor> gradients, double max_norm) const override;
  void adamw(AdamWState& state, const AdamWStep& step) const override { aten::adamw(state, step); }
};

}  // namespace evenkeel::nn::aten
