/// \file  Declares the pass of a batch through LibTorch's operators.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/aten_engine/cache_view.h"
#include "nn/aten_engine/choices.h"
#include "nn/aten_engine/experts.h"
#include "nn/aten_engine/layout.h"
#include "nn/engine/pass.h"

namespace evenkeel::nn::aten {

/// The factors of a model in the type of the matrix products. They are converted with few operators, before the first
/// layer.
struct PassFactors final : PreparedFactors {
  PassFactors(const ModelFactors& factors, const Compute& compute);

  lora::AdapterState multiplied;        ///< results of with_cores_multiplied(), used instead of the given adapters
  lora::AdapterState adapters, change;  ///< converted, of dense layers; other sites are converted where they are used
  std::vector<LayerFactors> experts;    ///< packed, one entry per layer
};

/// Owns the layout of a batch on the device, and the view of the cache.
class AtenPass final : public Pass {
 public:
  explicit AtenPass(const PassInput& input);
  /// \param layout  of the batch; the pass refers to its tensors \param cache  null: the pass has no cache
  AtenPass(const PassInput& input, Layout layout, std::unique_ptr<CacheView> cache = nullptr);

  const at::Tensor& ids_R() const override { return layout_.ids_R; }
  const RotaryTable& rotary(size_t number) const override { return layout_.rotary[number]; }
  at::Tensor block_input(const at::Tensor& x_RD) const override;
  std::vector<at::Tensor> linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                  bool exact) const override;
  at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const override;
  NormedSum add_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D, double eps,
                     bool for_products) const override;
  at::Tensor apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const override;
  Routing route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                bool norm_topk_prob) const override;
  at::Tensor experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                     size_t layer) const override;
  void end() override;
  /// Returns the experts that the layers selected so far. end() counts them.
  const LayerChoices& choices() const { return choices_; }

 private:
  at::Tensor packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const AttentionSteps& steps) const override;
  at::Tensor cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                    const AttentionSteps& steps, bool only_last) const override;
  at::Tensor of_tokens(const at::Tensor& x_R) const override;
  void count(const std::string& layer, const at::Tensor& experts_RK) override;
  const PassFactors& factors() const { return static_cast<const PassFactors&>(*in_.factors); }

  Layout layout_;
  std::unique_ptr<CacheView> cache_;  // filled layer by layer; null: the pass has no cache
  SlotNumbers numbers_;               // of the batch; empty without experts
  LayerChoices choices_;              // counted after the last layer
};

}  // namespace evenkeel::nn::aten
