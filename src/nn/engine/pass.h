/// \file  Declares the pass of one batch through the layers of a decoder, as an engine computes it. A model asks the
/// pass for each layer and does not know which engine it is. Dimension names: B sequences, R rows, N selected rows, T
/// tokens, H query heads, G key/value heads, P head width, I in, O out, D width, E experts, K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/example.h"
#include "lora/adapter.h"
#include "nn/attention/attention.h"
#include "nn/attention/kv_cache.h"
#include "nn/compute/compute.h"
#include "nn/dense/frozen_weight.h"
#include "nn/moe/experts.h"
#include "nn/moe/router_options.h"

namespace evenkeel::nn {

/// A frozen linear layer and its low-rank terms. Borrows all members.
struct LinearLayer {
  const FrozenWeight& weight;
  const std::string& site;  ///< name of the factors in the states of ModelFactors; empty: no factors
  lora::SiteFactors factors{};
  bool normed = false;  ///< whether a norm reads the output, which should then be contiguous
};

/// The experts of a layer and their low-rank terms. Borrows the weights.
struct ExpertLayer {
  const ExpertWeights& weights;
  ExpertFactors factors{};
};

/// All factors of a model that a pass adds to its weights. Borrows the states; null: none.
struct ModelFactors {
  const lora::AdapterState *adapters = nullptr, *base_change = nullptr;
  size_t layers = 0;
  /// Returns the experts of a layer; nothing for a layer without experts.
  std::function<std::optional<ExpertLayer>(size_t layer)> experts{};
  bool has_experts = false;                 ///< whether any layer has experts
  at::ScalarType activations = at::kFloat;  ///< type of the hidden states
};

/// The factors of a model in the form in which an engine computes with them (Engine::prepare()).
struct PreparedFactors {
  PreparedFactors() = default;
  PreparedFactors(const PreparedFactors&) = delete;
  PreparedFactors& operator=(const PreparedFactors&) = delete;
  virtual ~PreparedFactors() = default;
};

/// The residual stream after a block, and its norm for the next block.
struct NormedSum {
  at::Tensor sum_RD, norm_RD;
};

/// What a pass needs to know before the first layer. Borrows everything that it refers to.
struct PassInput {
  const data::PackedBatch& batch;
  const Compute& compute;
  c10::Device device;                 ///< of the weights
  int64_t rotary_width = 0;           ///< width of the rotary tables
  std::span<const RopeSpec> ropes{};  ///< one for each rotary table
  KvCache* cache = nullptr;           ///< after KvCache::extend(batch.offsets); null: none
  bool last_only = false;             ///< the last layer computes the last row of each sequence only; needs a cache
  int64_t experts = 0, top_k = 0;     ///< E and K of all layers with experts; 0: the model has none
  std::shared_ptr<const PreparedFactors> factors{};  ///< of Engine::prepare(); null where the engine has none
  /// Output: the routing of each micro-batch, one entry per micro-batch of the batch; empty: not recorded.
  std::span<RoutingByLayer> routing{};
  bool records_logits = true;  ///< RouterOptions::records_logits
};

/// One forward pass. Call the layers in their order, then end(). Not thread-safe.
class Pass {
 public:
  explicit Pass(const PassInput& input);
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  virtual ~Pass() = default;

  /// Returns the token ids of the rows, [R] int64, on the device.
  virtual const at::Tensor& ids_R() const = 0;
  /// Returns rotary table `number` at the positions of the rows, [R, P] each.
  virtual const RotaryTable& rotary(size_t number) const = 0;
  /// Returns the row of each sequence's last token, [B] int64. REQUIRES PassInput::last_only.
  const at::Tensor& last_rows_B() const { return last_rows_B_; }

  /// Converts the input of a block to the type in which its products are computed.
  virtual at::Tensor block_input(const at::Tensor& x_RD) const = 0;
  /// Applies several linear layers to one input: y = x W^T + the low-rank terms (nn/dense/linear.h).
  /// \param exact  true: in the type of `x`, whatever Compute::inner is
  /// \return [R, O] for each layer \throws kShape if sizes disagree
  virtual std::vector<at::Tensor> linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                          bool exact) const = 0;
  /// Computes nn::rms_norm(). \return [R, D]
  virtual at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const = 0;
  /// Adds the output of a block to the residual stream and normalises the sum: x + added, and rms_norm() of it.
  /// \param for_products  true: only products read the norm, so it may have the type of block_input()
  virtual NormedSum add_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D, double eps,
                             bool for_products) const;
  /// Computes nn::apply_steps(): norm, clamp and rotation of heads. \return [R, H, P]
  virtual at::Tensor apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const = 0;
  /// Computes causal attention of the batch, and of the cached tokens before it. Keys and values go to the cache.
  /// \param q  [R, H, P], or [B, H, P] of the last tokens, if `only_last` \param k, v  [R, G, P]
  /// \param layer  index in the cache \param steps  applied first \return [R, H P] or [B, H P]
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                       const AttentionSteps& steps, bool only_last) const;
  /// Computes nn::route().
  virtual Routing route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                        bool norm_topk_prob) const = 0;
  /// Writes the routing of a layer to PassInput::routing. \param layer  its routing key
  void record(const std::string& layer, const at::Tensor& logits_RE, const at::Tensor& experts_RK);
  /// Computes nn::experts(). \param layer  index of the layer in ModelFactors \return [R, D]
  virtual at::Tensor experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                             size_t layer) const = 0;
  /// Completes what the pass writes: the cache and the recorded routing.
  virtual void end() {}

 protected:
  /// Computes attention without a cache.
  virtual at::Tensor packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionSteps& steps) const = 0;
  /// Applies the steps, stores keys and values, and computes attention over the cache.
  virtual at::Tensor cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                            const AttentionSteps& steps, bool only_last) const = 0;
  /// Returns the values of the tokens, which may share rows. \param x_R  [R, ...] \return [T, ...]
  virtual at::Tensor of_tokens(const at::Tensor& x_R) const = 0;
  /// Counts the choices of a layer, at once or in end(). \param experts_RK  [R, K] int64
  virtual void count(const std::string& layer, const at::Tensor& experts_RK) = 0;

  const PassInput in_;

 private:
  at::Tensor last_rows_B_;
};

}  // namespace evenkeel::nn
