/// \file  Defines options, results and statistics of routers as plain data. Dimension names: T tokens, E experts, K
/// selected. N_p is the number of candidates.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

#include "base/format/config_table.h"
#include "base/format/safetensors.h"

namespace evenkeel::nn {

/// Selects how phi, an offset per expert, changes the scores of a token (docs/ambiguities.md, R1).
enum class ModulationMode {
  kCandidate,  ///< phi is added to the N_p largest scores, the candidates; then the top K experts are selected
  /// The min(K, N_p) experts with the largest scores are selected first. phi is added to the scores of all experts
  /// except the N_p largest. If K > N_p, the best K - N_p of these experts are selected too.
  kPreserve,
};
/// Selects the function that turns the logits of a checkpoint's router into scores of experts.
enum class ScoreFunction {
  kSoftmax,  ///< over all experts
  kSigmoid,  ///< of each logit (nn/moe/scored_routing.h)
};
/// Selects how gate weights are computed from scores (docs/ambiguities.md, R5).
enum class GateNorm {
  kCheckpoint,  ///< the checkpoint's own: softmax over all experts, renormalised iff norm_topk_prob ("olmoe_native")
  kRenormSelected,  ///< softmax over the selected experts only; sigmoid scores are divided by their sum
  kSoftmaxAll,      ///< softmax over all experts, whatever the checkpoint says; refused with sigmoid scores
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
  bool raw_gates = false;      ///< gate weights follow the scores without phi, which then only selects experts
  TensorMap modulation{};      ///< routing key of an MoE layer -> phi [E] float32, may require a gradient
  at::Tensor output_scale{};   ///< [1], multiplies every MoE layer's output, may require a gradient; undefined: 1
  bool records_logits = true;  ///< whether RoutingStats::router_logits is recorded, for a loss that reads it
};

/// The statistics of one MoE layer and one micro-batch that a forward call returns.
struct RoutingStats {
  at::Tensor router_logits;  ///< [T, E] raw scores s, differentiable; undefined if they require no gradient or are not
                             ///< recorded (RouterOptions::records_logits)
  /// [E] int64, how often each expert was selected. Each token of the micro-batch counts K times, even if it shares its
  /// computed row with other tokens.
  at::Tensor counts;
  int64_t tokens = 0;  ///< tokens of the micro-batch

  void visit(auto& field) {  // base/format/record.h; router_logits is not recorded
    field("tokens", tokens);
    field("counts", counts);
  }
};
using RoutingByLayer = std::map<std::string, RoutingStats>;

/// The result of route().
struct Routing {
  /// [T, K] int64, selected experts, ties to the lowest index. kCandidate: largest modulated score first. kPreserve:
  /// first min(K, N_p) experts by raw score, then the others by modulated score.
  at::Tensor experts;
  at::Tensor weights;  ///< [T, K], type of the logits, differentiable with respect to logits and phi
};

}  // namespace evenkeel::nn
