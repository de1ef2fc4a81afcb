#include "nn/aten_engine/routing.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "nn/cuda_kernels/routing.h"
#include "nn/dense/index.h"
#include "nn/moe/marked.h"
#include "nn/moe/routing.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Returns the experts by descending score, ties by ascending index. topk() guarantees no order of ties on a GPU.
at::Tensor ranked(const at::Tensor& scores_TE) {
  return std::get<1>(at::sort(scores_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true));
}

struct Selection {
  at::Tensor scores_TE;   // m
  at::Tensor experts_TK;  // chosen
  at::Tensor added_TE;    // 1 or true where phi was added, else 0; undefined without modulation
};

// Adds phi to the raw top N and selects the top K of the result.
Selection among_candidates(const at::Tensor& logits_TE, const at::Tensor& phi_E, const RouterOptions& options) {
  const auto candidates = ranked(logits_TE).narrow(1, 0, options.num_candidates);
  const auto added_TE = write_once(at::zeros_like(logits_TE), 1, candidates, 1);  // candidates differ
  const auto m_TE = at::addcmul(logits_TE, added_TE, phi_E);                      // exact: a factor is 0 or 1
  return {m_TE, ranked(m_TE).narrow(1, 0, options.top_k), added_TE};
}

// Selects the raw top N first. Adds phi to the others, of which the best fill the remaining K - N places.
Selection with_others(const at::Tensor& logits_TE, const at::Tensor& phi_E, const RouterOptions& options) {
  const auto raw_TE = ranked(logits_TE);
  const auto added_TE = marked(raw_TE.narrow(1, 0, options.num_candidates), logits_TE.size(1), false);
  const auto m_TE = at::where(added_TE, logits_TE + phi_E, logits_TE);
  const int64_t kept = std::min(options.top_k, options.num_candidates);
  auto chosen = raw_TE.narrow(1, 0, kept);
  if (kept < options.top_k) {
    const auto others_TE = m_TE.masked_fill(added_TE.logical_not(), -std::numeric_limits<double>::infinity());
    chosen = at::cat({chosen, ranked(others_TE).narrow(1, 0, options.top_k - kept)}, 1);
  }
  return {m_TE, chosen, added_TE};
}

Selection select(const at::Tensor& logits_TE, const at::Tensor& phi_E, const RouterOptions& options) {
  if (phi_E.numel() == 0) return {logits_TE, ranked(logits_TE).narrow(1, 0, options.top_k), at::Tensor()};
  return options.mode == ModulationMode::kCandidate ? among_candidates(logits_TE, phi_E, options)
                                                    : with_others(logits_TE, phi_E, options);
}

/// What GateNode saves.
struct GateTensors {
  cuda::Gates gates;
  at::Tensor added_TE;  // Selection::added_TE; zero if no gate depends on phi
};

GateTensors gates_of(const at::Tensor& logits_TE, const at::Tensor& phi_E, const RouterOptions& options,
                     bool over_selected) {
  if (phi_E.numel() == 0)
    if (auto own = cuda::gates(logits_TE, options.top_k, over_selected)) return {*std::move(own), at::Tensor()};
  auto selected = select(logits_TE, phi_E, options);
  const auto& scores_TE = options.raw_gates ? logits_TE : selected.scores_TE;
  const auto& experts_TK = selected.experts_TK;
  const auto probs_TE = over_selected ? at::Tensor() : at::softmax(scores_TE, 1);
  const auto weights_TK =
      over_selected ? at::softmax(scores_TE.gather(1, experts_TK), 1) : probs_TE.gather(1, experts_TK);
  if (options.raw_gates && phi_E.numel() > 0) selected.added_TE = at::zeros_like(selected.added_TE);
  return {{weights_TK, experts_TK, probs_TE}, selected.added_TE};
}

struct GateNode : torch::autograd::Function<GateNode> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& logits_TE, const at::Tensor& phi_E,
                               const RouterOptions& options, bool over_selected) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    const auto [gates, added_TE] = gates_of(logits_TE, phi_E, options, over_selected);
    const auto& [weights_TK, experts_TK, probs_TE] = gates;
    ctx->save_for_backward({weights_TK, experts_TK, probs_TE, added_TE});
    ctx->saved_data["experts"] = logits_TE.size(1);
    ctx->mark_non_differentiable({experts_TK});
    ctx->set_materialize_grads(false);
    return {weights_TK, experts_TK};
  }

  // For a softmax over the selected, dm_i = w_i (g_i - sum_j g_j w_j); over all experts, g is 0 for those not selected.
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    if (!grads[0].defined()) return variable_list(4);
    const auto saved = ctx->get_saved_variables();
    const auto &weights_TK = saved[0], &probs_TE = saved[2], &added_TE = saved[3];
    const int64_t experts = ctx->saved_data["experts"].toInt();
    if (!added_TE.defined())
      if (auto own = cuda::gates_backward(grads[0], {weights_TK, saved[1], probs_TE}, experts))
        return {*own, at::Tensor(), at::Tensor(), at::Tensor()};
    const auto through_softmax = [&](const at::Tensor& dy, const at::Tensor& y) {
      return at::_softmax_backward_data(dy, y, 1, y.scalar_type());
    };
    const auto over_all = [&](const at::Tensor& x_TK) {  // a token's experts differ: no place is written twice
      return write_once(at::zeros({x_TK.size(0), experts}, x_TK.options()), 1, saved[1], x_TK);
    };
    const auto dm_TE = probs_TE.defined() ? through_softmax(over_all(grads[0]), probs_TE)
                                          : over_all(through_softmax(grads[0], weights_TK));
    const auto dphi_E = ctx->needs_input_grad(1) ? (dm_TE * added_TE).sum(0) : at::Tensor();
    return {dm_TE, dphi_E, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

Routing route(const at::Tensor& logits_TE, const RouterOptions& options, const at::Tensor& phi_E, bool norm_topk_prob) {
  check_router(logits_TE, options, phi_E);
  // Autograd accepts no undefined tensors: an empty phi means no modulation.
  const auto phi = modulates(options, phi_E) ? phi_E.to(logits_TE.scalar_type()) : at::empty({0}, logits_TE.options());
  const auto outputs =
      GateNode::apply(logits_TE.contiguous(), phi, options, renormalises(options.gate_norm, norm_topk_prob));
  return {outputs[1], with_output_scale(outputs[0], options)};
}

}  // namespace evenkeel::nn::aten
