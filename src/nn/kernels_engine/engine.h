/// \file  Declares the engine of this program's kernels, which compute on processors (docs/kernels.md).
#pragma once

#include "nn/engine/engine.h"
#include "nn/kernels_engine/step_arithmetic.h"

namespace evenkeel::nn {

/// Computes with the layers of nn/dense, nn/attention and nn/moe. Supports int8 weights.
class KernelsEngine final : public Engine {
 public:
  bool stacks_weights() const override { return false; }
  at::Tensor wide_weight(const at::Tensor& stored) const override { return stored; }
  std::shared_ptr<const PreparedFactors> prepare(const ModelFactors&, const Compute&) const override { return nullptr; }
  std::unique_ptr<Pass> begin(const PassInput& input) const override;
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
  KernelsStepArithmetic step_{};
};

}  // namespace evenkeel::nn
