/// \file  Implements the sparse feed-forward block: a router, E experts of which each token uses the top k, and at most
/// one shared expert that every token uses. Dimension names: R rows of a batch, D hidden, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/mlp_leaf.h"
#include "nn/moe/experts.h"
#include "nn/moe/scored_routing.h"

namespace evenkeel::models {

/// Module names relative to the block: the router, expert e ("experts.<e>.gate_proj"), the shared expert and its gate.
struct MixtureNames {
  std::string router = "gate", correction_bias = "gate.e_score_correction_bias";
  std::string experts = "experts", shared = "shared_expert", shared_gate = "shared_expert_gate";
  GatedNames expert{};
  std::string fused = "mlp";          ///< the block's name in the fused layout (transformers 5)
  std::string fused_router = "gate";  ///< the router's name in the fused layout
  /// Names of tensors that contain all experts, relative to the block, for families whose published checkpoints fuse
  /// experts. Empty: one matrix per expert.
  std::string stored_gate_up{}, stored_down{};
};

/// Describes a shared expert.
struct SharedExpert {
  int64_t width = 0;
  bool gated = false;  ///< true: its output is multiplied by sigmoid(x w)
};

/// Describes a mixture.
struct MixtureSpec {
  int64_t experts = 0, top_k = 0, width = 0;  ///< E, k, and the inner width F of an expert
  Activation activation = Activation::kSilu;  ///< activation of the experts; only kSilu is supported
  GateRule gate{};
  nn::RouterRule router{};       ///< groups and factor; the leaf sets `score`, `renormalise` and `bias_E`
  bool correction_bias = false;  ///< true: the checkpoint has a bias [E] of the selection
  std::optional<SharedExpert> shared{};
  MixtureNames names{};
};

/// config.json keys of a mixture's sizes.
struct MixtureKeys {
  std::string_view experts = "num_experts", top_k = "num_experts_per_tok", width = "intermediate_size";
  std::string_view experts_too = "num_local_experts";  ///< alternative key of `experts`
};
/// Reads the sizes of a mixture and checks that hidden_act is silu.
/// \throws kCheckpoint when a size is missing or below 1, k is larger than E, the two keys of E differ, or the
/// activation is not silu
MixtureSpec read_mixture(const ModelConfig& config, const MixtureKeys& keys = {});

/// Computes y = sum_k gate_k expert_k(x) (+ sigmoid(x w) shared(x)). The gates are the top k entries of softmax(x R^T),
/// unchanged or renormalised, or what MixtureSpec::router says (nn/moe/scored_routing.h). A method's router options
/// apply to the routed experts only.
class MixtureLeaf {
 public:
  /// Takes the tensors of the block from `model`.
  /// \param module  module name, as in "model.layers.3.mlp"; also the routing key of the block
  /// \throws kConfig when the activation is not silu, the only one that nn/moe/experts.h computes
  MixtureLeaf(const MixtureSpec& spec, const std::string& module, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;
  /// Returns the experts with their factors. Borrows the weights and the factors.
  nn::ExpertLayer expert_layer(const ForwardOptions& options) const;

 private:
  void take_router(ModelBuilder& model);
  std::string fused_block() const;
  std::vector<nn::FrozenWeight> take_stack(const std::string& site_name, const std::string& name,
                                           lora::FusedPlace fused, std::string_view gguf, ModelBuilder& model);
  nn::FrozenWeight take_expert(const lora::Site& site, int64_t index, const std::string& site_name,
                               ModelBuilder& model);
  void take_shared(const SharedExpert& shared, ModelBuilder& model);
  at::Tensor routed(const at::Tensor& x_RD, const LayerPass& pass) const;
  nn::Routing route(const at::Tensor& logits_RE, const LayerPass& pass) const;
  at::Tensor shared(const at::Tensor& x_RD, const LayerPass& pass) const;

  MixtureSpec spec_;
  std::string module_, gate_site_, up_site_, down_site_;
  FrozenLinear router_;
  nn::ExpertWeights experts_;
  std::optional<MlpLeaf> shared_;
  std::optional<FrozenLinear> shared_gate_;
};

}  // namespace evenkeel::models
