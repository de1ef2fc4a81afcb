/// \file  Defines options, results and statistics of routers as plain data. Dimension names: T tokens, E experts, K
/// selected, N candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/format/config_table.h"
#include "base/format/safetensors.h"

namespace evenkeel::nn {

/// Selects the experts to whose scores phi, an offset per expert, is added (docs/ambiguities.md, R1).
enum class ModulationMode {
  kCandidate,  ///< phi is added to the N_p largest scores; then the top K experts are selected
  /// The N_p experts with the largest scores are selected. phi is added to the scores of the others, which fill the
  /// remaining K - N_p places.
  kPreserve,
};
/// Selects how gate weights are computed from scores (docs/ambiguities.md, R5).
enum class GateNorm {
  kCheckpoint,  ///< the checkpoint's own: softmax over all experts, renormalised iff norm_topk_prob ("olmoe_native")
  kRenormSelected,  ///< softmax over the selected experts only
  kSoftmaxAll,      ///< softmax over all experts, whatever the checkpoint says
};
constexpr auto names(GateNorm) {
  return std::array{config::EnumName<GateNorm>{"olmoe_native", GateNorm::kCheckpoint},
                    config::EnumName<GateNorm>{"renorm_selected", GateNorm::kRenormSelected},
                    config::EnumName<GateNorm>{"softmax_all", GateNorm::kSoftmaxAll}};
}
/// Returns true if the gate weights of a token sum to one. \param norm_topk_prob  the checkpoint's flag
constexpr bool renormalises(GateNorm norm, bool norm_topk_prob) {
  return norm == GateNorm::kRenormSelected || (norm == GateNorm::kCheckpoint && norm_topk_prob);
}

/// The router options of a forward call. They apply to every MoE layer.
struct RouterOptions {
  int64_t top_k = 0;  ///< K_c, 1 .. E; 0: the checkpoint's num_experts_per_tok
  GateNorm gate_norm = GateNorm::kCheckpoint;
  int64_t num_candidates = 0;  ///< N_p, 0 .. E; 0 switches modulation off
  ModulationMode mode = ModulationMode::kCandidate;
  TensorMap modulation{};     ///< MoE layer -> phi [E] float32, may require a gradient
  at::Tensor output_scale{};  ///< [1], multiplies every MoE layer's output, may require a gradient; undefined: 1
};

/// The statistics of one MoE layer that a forward call returns.
struct RoutingStats {
  at::Tensor router_logits;  ///< [T, E] float32, raw scores s, differentiable; undefined without gradients
  at::Tensor counts;         ///< [E] int64, token-choices in this forward: real tokens only, each once
  int64_t tokens = 0;        ///< tokens routed in this forward

  void visit(auto& field) {  // base/format/record.h; router_logits is not recorded
    field("tokens", tokens);
    field("counts", counts);
  }
};
using RoutingByLayer = std::map<std::string, RoutingStats>;

/// The result of route().
struct Routing {
  at::Tensor experts;  ///< [T, K] int64, selected experts, largest modulated score first, ties to the lowest index
  at::Tensor weights;  ///< [T, K] float32, differentiable with respect to logits and phi
};

}  // namespace evenkeel::nn
