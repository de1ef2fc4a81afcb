/// \file  Declares the tensor operations of an optimiser step on the CPU.
#pragma once

#include "nn/engine/step_arithmetic.h"

namespace evenkeel::nn {

/// Computes in one pass over memory, expert by expert. Sums are float64. Their order does not depend on the number of
/// threads, except in limit_norm(), which adds with LibTorch's operators.
class KernelsStepArithmetic final : public StepArithmetic {
 public:
  at::Tensor expert_norms(std::span<const at::Tensor> tensors) const override;
  at::Tensor add_terms(std::span<const ExpertTerms> layers, const TermScales& scales, const at::Tensor& norm_LE,
                       double factor) const override;
  at::Tensor limit_norm(std::vector<at::Tensor> gradients, double limit) const override;
  void clip_norm(std::vector<at::Tensor> gradients, double max_norm) const override;
  void adamw(AdamWState& state, const AdamWStep& step) const override;
};

}  // namespace evenkeel::nn
