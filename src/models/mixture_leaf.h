/// \file  The sparse feed-forward block: a router, experts of which each token takes the top k, and at most one shared
/// expert that every token takes. Dimension names: R rows of a batch, D hidden, E experts.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "models/mlp_leaf.h"
#include "nn/moe/experts.h"

namespace evenkeel {

/// Modules below the block's own: the router, expert e ("experts.<e>.gate_proj"), the shared expert and its gate.
struct MixtureNames {
  std::string router = "gate", experts = "experts", shared = "shared_expert", shared_gate = "shared_expert_gate";
  GatedNames expert{};
  std::string fused = "mlp";          ///< the block where experts are one tensor (transformers 5)
  std::string fused_router = "gate";  ///< the router there
  /// Tensors of all experts, below the block's own, where the family's checkpoints have always had them; empty: a
  /// matrix for each expert.
  std::string stored_gate_up{}, stored_down{};
};

struct SharedExpert {
  int64_t width = 0;
  bool gated = false;  ///< its output is multiplied by sigmoid(x w), a gate of its own
};

struct MixtureSpec {
  int64_t experts = 0, top_k = 0, width = 0;  ///< E, k, F of one expert
  Activation activation = Activation::kSilu;  ///< of experts: silu alone, see the constructor
  GateRule gate{};
  std::optional<SharedExpert> shared{};
  MixtureNames names{};
};

/// The keys of config.json that hold a mixture's sizes.
struct MixtureKeys {
  std::string_view experts = "num_experts", top_k = "num_experts_per_tok", width = "intermediate_size";
  std::string_view experts_too = "num_local_experts";  ///< another spelling of `experts`
};
/// Sizes, and silu as hidden_act. \throws kCheckpoint when k is more than E, the spellings of E differ, or the
/// activation is another.
MixtureSpec read_mixture(const ModelConfig& config, const MixtureKeys& keys = {});

/// gates = softmax(x R^T), the top k of them as they are or renormalised;
/// y = sum_k gate_k expert_k(x) (+ sigmoid(x w) shared(x)). A method's router options apply to the routed part alone.
class MixtureLeaf {
 public:
  /// \param module  "model.layers.3.mlp": also the key of these experts' routing. \throws kConfig for experts of
  /// another activation than silu: nn/moe/experts.h computes no other.
  MixtureLeaf(const MixtureSpec& spec, const std::string& module, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;

 private:
  void take_router(ModelBuilder& model);
  std::string fused_block() const;
  std::vector<FrozenWeight> take_stack(const std::string& site_name, const std::string& name, FusedPlace fused,
                                       std::string_view gguf, ModelBuilder& model);
  FrozenWeight take_expert(const Site& site, int64_t index, const std::string& site_name, ModelBuilder& model);
  void take_shared(const SharedExpert& shared, ModelBuilder& model);
  at::Tensor routed(const at::Tensor& x_RD, const LayerPass& pass) const;
  at::Tensor shared(const at::Tensor& x_RD, const LayerPass& pass) const;
  void record(const at::Tensor& logits_RE, const Routing& routing, const LayerPass& pass) const;

  MixtureSpec spec_;
  std::string module_, gate_site_, up_site_, down_site_;
  FrozenLinear router_;
  ExpertWeights experts_;
  std::optional<MlpLeaf> shared_;
  std::optional<FrozenLinear> shared_gate_;
};

}  // namespace evenkeel
