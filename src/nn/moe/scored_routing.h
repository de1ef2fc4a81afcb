/// \file  Selects experts and computes gate weights for routers that differ from a softmax with top K: sigmoid scores,
/// a bias of the selection, groups of experts, a factor of the gate weights. Works on any device.
/// Dimension names: T tokens, E experts, K selected.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "nn/moe/router_options.h"

namespace evenkeel::nn {

/// Selects how the score of a group is computed from the scores of its experts.
enum class GroupScore { kLargest, kSumOfTwoLargest };

/// Describes the router of a checkpoint. Source: DeepSeek-V2 (2024) for groups, DeepSeek-V3 (2024) for the rest.
struct RouterRule {
  ScoreFunction score = ScoreFunction::kSoftmax;
  bool renormalise = false;  ///< the checkpoint's flag: gate weights are divided by their sum
  double scale = 1;          ///< factor of the gate weights, after the division
  at::Tensor bias_E{};       ///< added to the scores for the selection only; undefined: none
  int64_t groups = 1;        ///< number of equal groups of adjacent experts; divides E
  int64_t kept_groups = 1;   ///< a token selects among the experts of the groups with the largest scores
  GroupScore group_score = GroupScore::kLargest;

  /// Returns true for a softmax with top K, which nn::route() computes.
  bool is_plain() const {
    return score == ScoreFunction::kSoftmax && scale == 1 && !bias_E.defined() && groups == kept_groups;
  }
};

/// Routes T tokens as nn::route() does (nn/moe/routing.h), with the scores of `rule`. UB-SMoE's router offset phi is
/// added to logits, before the score function. Candidates (RouterOptions::num_candidates) have the largest scores plus
/// bias, computed without phi. Groups are chosen without phi too. Gate weights are scores without the bias, computed
/// with phi, or without it if RouterOptions::raw_gates is set.
/// GateNorm::kRenormSelected divides them by their sum, whatever the checkpoint says.
/// \param logits_TE  [T, E] float32 or float64 \param phi_E  [E] or undefined
/// \throws kConfig if top_k is not in 1 .. E or above the number of experts in the kept groups, if num_candidates is
/// not in 0 .. E, or for gate_norm kSoftmaxAll with sigmoid scores
Routing scored_route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E,
                     const RouterRule& rule);

/// Refuses GateNorm::kSoftmaxAll with sigmoid scores. \param key  name of the setting, for errors \throws kConfig
void check_gate_norm(ScoreFunction score, GateNorm norm, std::string_view key = "gate_norm");

}  // namespace evenkeel::nn
