/// \file  Declares the engine of LibTorch's operators, for any device.
#pragma once

#include "nn/aten_engine/step_arithmetic.h"
#include "nn/engine/engine.h"

namespace evenkeel::nn::aten {

/// Computes with LibTorch's operators. No operator of a training step waits for the device. Weights are of a float
/// type, and the experts of a layer lie in two stacks.
class AtenEngine final : public Engine {
 public:
  bool stacks_weights() const override { return true; }
  /// Returns the weight in float32 or wider.
  at::Tensor wide_weight(const at::Tensor& stored) const override;
  std::shared_ptr<const PreparedFactors> prepare(const ModelFactors& factors, const Compute& compute) const override;
  std::unique_ptr<Pass> begin(const PassInput& input) const override;
  std::unique_ptr<PassGraphs> graphs() const override;
  at::Tensor linear(const at::Tensor& x_NI, const FrozenWeight& w, const Compute& compute) const override;
  at::Tensor full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                            std::span<const int64_t> offsets) const override;
  at::Tensor rows(const at::Tensor& hidden_RD, const at::Tensor& rows_N) const override;
  at::Tensor logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const Compute& compute,
                    double soft_cap) const override;
  std::vector<LossSum> cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                       const at::Tensor& targets_N, std::span<const int64_t> counts,
                                       const Compute& compute, double soft_cap) const override;
  at::Tensor target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head, const at::Tensor& targets_N,
                             const Compute& compute, double soft_cap) const override;
  const StepArithmetic& step() const override { return step_; }

 private:
  AtenStepArithmetic step_{};
};

}  // namespace evenkeel::nn::aten
