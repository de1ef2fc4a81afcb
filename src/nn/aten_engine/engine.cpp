#include "nn/aten_engine/engine.h"

#include <ATen/ATen.h>

#include <array>

#include "base/plain/error.h"
#include "nn/aten_engine/linear.h"
#include "nn/aten_engine/loss.h"
#include "nn/aten_engine/pass.h"
#include "nn/aten_engine/rows.h"
#include "nn/aten_engine/stack_graphs.h"
#include "nn/aten_engine/trained_head.h"
#include "nn/attention/full_attention.h"
#include "nn/dense/index.h"

namespace evenkeel::nn::aten {

at::Tensor AtenEngine::wide_weight(const at::Tensor& stored) const {
  return stored.scalar_type() == at::kDouble ? stored : stored.to(at::kFloat);
}

std::shared_ptr<const PreparedFactors> AtenEngine::prepare(const ModelFactors& factors, const Compute& compute) const {
  return std::make_shared<const PassFactors>(factors, compute);
}

std::unique_ptr<Pass> AtenEngine::begin(const PassInput& input) const { return std::make_unique<AtenPass>(input); }

std::unique_ptr<PassGraphs> AtenEngine::graphs() const { return std::make_unique<StackGraphs>(); }

at::Tensor AtenEngine::linear(const at::Tensor& x_NI, const FrozenWeight& w, const Compute& compute) const {
  check_linear_shapes(x_NI, w.values_OI);
  return aten::linears(x_NI, std::array{projection_of(w, {}, {})}, inner_type(x_NI, compute)).front();
}

at::Tensor AtenEngine::full_attention(const at::Tensor& q_THP, const at::Tensor& k_THP, const at::Tensor& v_THP,
                                      std::span<const int64_t> offsets) const {
  return nn::full_attention(q_THP, k_THP, v_THP, offsets, /*most_at_once=*/q_THP.size(0));
}

at::Tensor AtenEngine::rows(const at::Tensor& hidden_RD, const at::Tensor& rows_N) const {
  IndexUpload upload;
  const RowIndexUpload index(numbers(rows_N), hidden_RD.size(0), upload);
  upload.send(hidden_RD.device());
  return gather_rows(hidden_RD, index.sent(upload));
}

at::Tensor AtenEngine::logits(const at::Tensor& hidden_ND, const FrozenWeight& head, const Compute& compute,
                              double soft_cap) const {
  return soft_capped(aten::logits(hidden_ND, head.values_OI, inner_type(hidden_ND, compute)), soft_cap);
}

std::vector<LossSum> AtenEngine::cross_entropies(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                                 const at::Tensor& targets_N, std::span<const int64_t> counts,
                                                 const Compute& compute, double soft_cap) const {
  check_targets(hidden_ND, head.values_OI, targets_N);
  EK_CHECK(!head.scales_O.defined(), kInternal, "engine aten takes a head of a float type");
  const auto targets = targets_N.to(hidden_ND.device(), /*non_blocking=*/true);
  const auto type = inner_type(hidden_ND, compute);
  const auto& head_VD = head.values_OI;
  return loss_sums(trains_head(head, counts) ? trained_cross_entropy(hidden_ND, head_VD, targets, type, soft_cap)
                                             : aten::cross_entropies(hidden_ND, head_VD, targets,
                                                                     {counts.begin(), counts.end()}, type, soft_cap),
                   counts);
}

at::Tensor AtenEngine::target_logprobs(const at::Tensor& hidden_ND, const FrozenWeight& head,
                                       const at::Tensor& targets_N, const Compute& compute, double soft_cap) const {
  check_targets(hidden_ND, head.values_OI, targets_N);
  return aten::target_logprobs(hidden_ND, head.values_OI, targets_N.to(hidden_ND.device(), /*non_blocking=*/true),
                               inner_type(hidden_ND, compute), soft_cap);
}

}  // namespace evenkeel::nn::aten
