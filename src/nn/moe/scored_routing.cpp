#include "nn/moe/scored_routing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/plain/error.h"
#include "nn/moe/marked.h"
#include "nn/moe/routing.h"

namespace evenkeel::nn {
namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();
constexpr double kSmallestSum = 1e-20;  // transformers' guard of the division

at::Tensor ranked(const at::Tensor& x) {
  return std::get<1>(at::sort(x, /*stable=*/true, /*dim=*/1, /*descending=*/true));
}

/// Returns what experts are ranked by, without the limit to groups. The softmax keeps the order of the logits.
at::Tensor choice_of(const at::Tensor& logits_TE, const RouterRule& rule) {
  auto choice_TE = rule.score == ScoreFunction::kSigmoid ? at::sigmoid(logits_TE) : logits_TE;
  return rule.bias_E.defined() ? choice_TE + rule.bias_E.to(choice_TE.scalar_type()) : choice_TE;
}

at::Tensor group_scores(const at::Tensor& choice_TGn, GroupScore score) {
  if (score == GroupScore::kLargest) return choice_TGn.amax(-1);
  return std::get<0>(at::topk(choice_TGn, 2, -1)).sum(-1);
}

/// Returns which experts each token may select, [T, E] bool; undefined: all.
at::Tensor allowed_experts(const at::Tensor& choice_TE, const RouterRule& rule) {
  if (rule.groups == rule.kept_groups) return {};
  const int64_t each = choice_TE.size(1) / rule.groups;
  const auto scores_TG = group_scores(choice_TE.view({-1, rule.groups, each}), rule.group_score);
  const auto kept_TG = marked(ranked(scores_TG).narrow(1, 0, rule.kept_groups), rule.groups);
  return kept_TG.unsqueeze(-1).expand({-1, rule.groups, each}).reshape(choice_TE.sizes());
}

/// Selects experts among those that a token may select.
struct Selector {
  const RouterRule& rule;
  const RouterOptions& options;
  at::Tensor allowed_TE;

  at::Tensor order(const at::Tensor& logits_TE, const at::Tensor& barred_TE = {}) const {
    auto choice_TE = choice_of(logits_TE, rule);
    if (allowed_TE.defined()) choice_TE = choice_TE.masked_fill(allowed_TE.logical_not(), kLowest);
    if (barred_TE.defined()) choice_TE = choice_TE.masked_fill(barred_TE, kLowest);
    return ranked(choice_TE);
  }
  /// Returns where phi is added, [T, E] bool. \param raw_TE  the order of the unmodulated experts
  at::Tensor modulated_places(const at::Tensor& raw_TE) const {
    return marked(raw_TE.narrow(1, 0, options.num_candidates), raw_TE.size(1),
                  options.mode == ModulationMode::kCandidate);
  }
  at::Tensor chosen(const at::Tensor& raw_TE, const at::Tensor& m_TE, const at::Tensor& added_TE) const {
    if (options.mode == ModulationMode::kCandidate) return order(m_TE).narrow(1, 0, options.top_k);
    const int64_t kept = std::min(options.top_k, options.num_candidates);
    const auto first = raw_TE.narrow(1, 0, kept);
    if (kept == options.top_k) return first;
    return at::cat({first, order(m_TE, added_TE.logical_not()).narrow(1, 0, options.top_k - kept)}, 1);
  }
};

struct Selection {
  at::Tensor m_TE;        // logits with phi, differentiable
  at::Tensor experts_TK;  // selected
};

Selection selected(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E,
                   const RouterRule& rule) {
  const auto raw_logits_TE = logits_TE.detach();
  const auto constant = [&] {  // selections are not differentiated
    RouterRule own = rule;
    if (own.bias_E.defined()) own.bias_E = own.bias_E.detach();
    return own;
  }();
  const Selector select{constant, options, allowed_experts(choice_of(raw_logits_TE, constant), constant)};
  const auto raw_TE = select.order(raw_logits_TE);
  if (options.num_candidates == 0 || !phi_E.defined())
    return {logits_TE, raw_TE.narrow(1, 0, options.top_k).contiguous()};
  const auto added_TE = select.modulated_places(raw_TE);
  const auto m_TE = at::where(added_TE, logits_TE + phi_E.to(logits_TE.scalar_type()), logits_TE);
  return {m_TE, select.chosen(raw_TE, m_TE.detach(), added_TE).contiguous()};
}

/// Returns the gate weights of the selected experts, without the factors.
at::Tensor gates(const at::Tensor& m_TE, const at::Tensor& experts_TK, const RouterRule& rule, bool renormalise) {
  if (rule.score == ScoreFunction::kSoftmax)
    return renormalise ? at::softmax(m_TE.gather(1, experts_TK), 1) : at::softmax(m_TE, 1).gather(1, experts_TK);
  const auto scores_TK = at::sigmoid(m_TE.gather(1, experts_TK));
  return renormalise ? scores_TK / (scores_TK.sum(1, true) + kSmallestSum) : scores_TK;
}

void check(const at::Tensor& logits_TE, const RouterOptions& options, const RouterRule& rule) {
  const int64_t experts = logits_TE.size(1), most = experts / rule.groups * rule.kept_groups;
  EK_CHECK(options.top_k >= 1 && options.top_k <= most, kConfig, "top_k is ", options.top_k, ", allowed: 1 to ", most,
           most < experts ? ", the experts of the groups that a token may use" : ", the experts of the model");
  EK_CHECK(options.num_candidates >= 0 && options.num_candidates <= experts, kConfig, "num_candidates is ",
           options.num_candidates, ", allowed: 0 to ", experts, ", the experts of the model");
  check_gate_norm(rule.score, options.gate_norm);
}

}  // namespace

void check_gate_norm(ScoreFunction score, GateNorm norm, std::string_view key) {
  EK_CHECK(score != ScoreFunction::kSigmoid || norm != GateNorm::kSoftmaxAll, kConfig, key, " is ",
           config::name_of(norm),
           ", but the gates of this model are sigmoids, allowed: ", config::name_of(GateNorm::kCheckpoint), ", ",
           config::name_of(GateNorm::kRenormSelected));
}

Routing scored_route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E,
                     const RouterRule& rule) {
  check(logits_TE, options, rule);
  const auto [m_TE, experts_TK] = selected(logits_TE, options, phi_E, rule);
  auto weights_TK =
      gates(options.raw_gates ? logits_TE : m_TE, experts_TK, rule, renormalises(options.gate_norm, rule.renormalise));
  if (rule.scale != 1) weights_TK = weights_TK * rule.scale;
  weights_TK = with_output_scale(weights_TK, options);
  // Selections have no gradient: whoever trains the bias, or phi with raw gates, gets zeros.
  if (rule.bias_E.defined() && rule.bias_E.requires_grad()) weights_TK = weights_TK + 0 * rule.bias_E.sum();
  if (options.raw_gates && modulates(options, phi_E) && phi_E.requires_grad())
    weights_TK = weights_TK + (0 * phi_E.sum()).to(weights_TK.scalar_type());
  return {experts_TK, weights_TK};
}

}  // namespace evenkeel::nn
