#include "nn/aten_engine/trained_head.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nn/aten_engine/loss.h"
#include "nn/dense/index.h"
#include "nn/dense/logits_memory.h"
#include "nn/dense/loss.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The gradient of the logits, softmax - onehot, times the slope of the soft cap.
at::Tensor logits_gradient(const at::Tensor& logprobs_NV, const at::Tensor& capped_NV, const at::Tensor& targets_N1,
                           double soft_cap) {
  auto gradient_NV = logprobs_NV.exp();
  gradient_NV = write_once(gradient_NV, 1, targets_N1, gradient_NV.gather(1, targets_N1).sub_(1));
  return soft_cap > 0 ? gradient_NV * (1 - (capped_NV / soft_cap).square()) : gradient_NV;
}

struct TrainedHeadNode : torch::autograd::Function<TrainedHeadNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden_ND, const at::Tensor& head_VD,
                            const at::Tensor& targets_N, at::ScalarType type, double soft_cap) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    const auto w_VD = head_VD.to(type);
    const int64_t step = std::max<int64_t>(16, kLogitsBytes / 4 / w_VD.size(0));
    auto dhidden_ND = at::empty_like(hidden_ND), dhead_VD = at::zeros(head_VD.sizes(), hidden_ND.options());
    auto sum_1 = at::zeros({1}, hidden_ND.options().dtype(at::kDouble));
    for (int64_t n = 0; n < hidden_ND.size(0); n += step) {
      const auto hidden = hidden_ND.slice(0, n, n + step), targets_N1 = targets_N.slice(0, n, n + step).unsqueeze(1);
      const auto logits_NV = soft_capped(aten::logits(hidden, w_VD, type), soft_cap),
                 logprobs_NV = at::log_softmax(logits_NV, 1);
      sum_1.sub_(logprobs_NV.gather(1, targets_N1).to(at::kDouble).sum());
      const auto dlogits_NV = logits_gradient(logprobs_NV, logits_NV, targets_N1, soft_cap);
      dhidden_ND.slice(0, n, n + step).copy_(at::mm(dlogits_NV.to(type), w_VD));
      dhead_VD.addmm_(dlogits_NV.t(), hidden.to(dlogits_NV.scalar_type()));
    }
    ctx->save_for_backward({dhidden_ND, dhead_VD});
    return sum_1.to(hidden_ND.scalar_type());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto saved = ctx->get_saved_variables();
    return {saved[0] * grads[0], saved[1] * grads[0], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor trained_cross_entropy(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                                 at::ScalarType type, double soft_cap) {
  return TrainedHeadNode::apply(hidden_ND, head_VD, targets_N, type, soft_cap);
}

}  // namespace evenkeel::nn::aten
