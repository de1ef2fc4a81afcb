/// \file  Declares the pass of one batch through the layers of a decoder, as an engine computes it. A model calls the
/// pass for each layer and does not know which engine implements it. Dimension names: B sequences, R rows, T tokens, H
/// query heads, G key/value heads, P head width, I in, O out, D width, E experts, K selected experts of a token.
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

/// All LoRA factors that a pass adds to the weights of a model: adapters, and the change of the base. Borrows the
/// states; null: none.
struct ModelFactors {
  const lora::AdapterState *adapters = nullptr, *base_change = nullptr;
  size_t layers = 0;
  /// Returns the experts of a layer; nullopt for a layer without experts.
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

/// The residual stream after a block, and its RMSNorm for the next block.
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
  KvCache* cache = nullptr;           ///< REQUIRES an earlier KvCache::extend(batch.offsets); null: no cache
  bool last_only = false;             ///< the last layer computes the last row of each sequence only; needs a cache
  int64_t experts = 0, top_k = 0;     ///< E and K of all layers with experts; 0: the model has none
  std::shared_ptr<const PreparedFactors> factors{};  ///< the result of Engine::prepare()
  /// Output: the routing, one entry per micro-batch; empty: routing is not recorded.
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
  /// Returns rotary table `number` at the positions of the rows, [R, rotary_width] each.
  virtual const RotaryTable& rotary(size_t number) const = 0;
  /// Returns the row of each sequence's last token, [B] int64. REQUIRES PassInput::last_only.
  const at::Tensor& last_rows_B() const { return last_rows_B_; }

  /// Converts the input of a block to the type of its matrix products.
  virtual at::Tensor block_input(const at::Tensor& x_RD) const = 0;
  /// Applies several linear layers to one input: y = x W^T + the low-rank terms (nn/dense/linear.h).
  /// \param exact  true: the matrix products have the type of `x`, whatever Compute::inner is
  /// \return [R, O] for each layer \throws kShape if sizes disagree
  virtual std::vector<at::Tensor> linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                          bool exact) const = 0;
  /// Computes nn::rms_norm(). \return [R, D]
  virtual at::Tensor rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const = 0;
  /// Adds the output of a block to the residual stream: returns x + added and the rms_norm() of that sum.
  /// \param for_products  true: only matrix products read the norm, so it may have the type of block_input()
  virtual NormedSum add_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D, double eps,
                             bool for_products) const;
  /// Computes nn::apply_steps(): norm, clamp and rotation of heads. \return [R, H, P]
  virtual at::Tensor apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const = 0;
  /// Computes causal attention. With a cache, keys and values are first written to it, and queries attend to the cached
  /// tokens too.
  /// \param q  [R, H, P]; if `only_last`, [B, H, P]: the last token of each sequence (REQUIRES PassInput::last_only)
  /// \param k, v  [R, G, P]
  /// \param layer  index of the layer in the cache \param steps  applied to q, k and v first
  /// \return [R, H P] or [B, H P]
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                       const AttentionSteps& steps, bool only_last) const;
  /// Computes nn::route(). \param phi_E  phi of this layer; `options.modulation` is not read
  virtual Routing route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                        bool norm_topk_prob) const = 0;
  /// Writes the routing of a layer to PassInput::routing. \param layer  the routing key of the layer
  void record(const std::string& layer, const at::Tensor& logits_RE, const at::Tensor& experts_RK);
  /// Computes nn::experts(). \param layer  index of the layer in ModelFactors \return [R, D]
  virtual at::Tensor experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                             size_t layer) const = 0;
  /// Completes the cache and PassInput::routing. Call it after the last layer.
  virtual void end() {}

 protected:
  /// Computes attention without a cache.
  virtual at::Tensor packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionSteps& steps) const = 0;
  /// Applies the steps, stores keys and values, and computes attention over the cache.
  virtual at::Tensor cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                            const AttentionSteps& steps, bool only_last) const = 0;
  /// Copies each row to the tokens that share it. \param x_R  [R, ...] \return [T, ...]
  virtual at::Tensor of_tokens(const at::Tensor& x_R) const = 0;
  /// Counts how often a layer selects each expert, at once or in end(). \param experts_RK  [R, K] int64
  virtual void count(const std::string& layer, const at::Tensor& experts_RK) = 0;

  const PassInput in_;

 private:
  at::Tensor last_rows_B_;
};

}  // namespace evenkeel::nn
