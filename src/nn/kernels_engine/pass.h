/// \file  Declares the pass of a batch through the kernels of this program.
#pragma once

#include <vector>

#include "nn/engine/pass.h"

namespace evenkeel::nn {

/// Computes with the layers of nn/dense, nn/attention and nn/moe, and with the factors as they are.
class KernelsPass final : public Pass {
 public:
  explicit KernelsPass(const PassInput& input);

  const at::Tensor& ids_R() const override { return in_.batch.ids; }
  const RotaryTable& rotary(size_t number) const override { return rotary_[number]; }
  at::Tensor block_input(const at::Tensor& x_RD) const override { return x_RD; }
  std::vector<at::Tensor> linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                  bool exact) const override;
  at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const override;
  at::Tensor apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const override;
  Routing route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                bool norm_topk_prob) const override;
  at::Tensor experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                     size_t layer) const override;

 private:
  at::Tensor packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionSteps& steps) const override;
  at::Tensor cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                    const AttentionSteps& steps, bool only_last) const override;
  at::Tensor of_tokens(const at::Tensor& x_R) const override;
  void count(const std::string& layer, const at::Tensor& experts_RK) override;
  bool begins_sequences() const;

  std::vector<RotaryTable> rotary_;
};

}  // namespace evenkeel::nn
