#include "nn/aten_engine/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "nn/dense/logits_memory.h"
#include "nn/dense/loss.h"

namespace evenkeel::nn::aten {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Computes x W^T in float32 or wider. On a GPU the sums of 16-bit products are not rounded to 16 bits first.
at::Tensor wide_product(const at::Tensor& x_ND, const at::Tensor& w_VD) {
  if (x_ND.scalar_type() == at::kFloat || x_ND.scalar_type() == at::kDouble) return at::mm(x_ND, w_VD.t());
  return x_ND.is_cuda() ? at::mm(x_ND, w_VD.t(), at::kFloat) : at::mm(x_ND, w_VD.t()).to(at::kFloat);
}

struct Parts {
  at::Tensor logprobs_N, dhidden_ND;  // the gradient of -sum(logprobs); undefined unless asked for
};

// Computes d/dh = softmax(h W^T) W - W[target], without a one-hot matrix.
at::Tensor hidden_gradient(const at::Tensor& logprobs_NV, const at::Tensor& w_VD, const at::Tensor& targets_N) {
  auto probs_NV = at::empty(logprobs_NV.sizes(), w_VD.options());
  at::exp_out(probs_NV, logprobs_NV);
  return at::mm(probs_NV, w_VD).sub_(w_VD.index_select(0, targets_N));
}

// The same with a soft cap, whose derivative is 1 - (capped / cap)^2.
at::Tensor hidden_gradient_of_capped(const at::Tensor& logprobs_NV, const at::Tensor& capped_NV, double soft_cap,
                                     const at::Tensor& w_VD, const at::Tensor& targets_N) {
  const auto slopes_NV = 1 - (capped_NV / soft_cap).square(), probs_NV = logprobs_NV.exp() * slopes_NV;
  const auto at_targets_N1 = slopes_NV.gather(1, targets_N.unsqueeze(1));
  return at::mm(probs_NV.to(w_VD.scalar_type()), w_VD)
      .sub_((w_VD.index_select(0, targets_N) * at_targets_N1).to(w_VD.scalar_type()));
}

Parts in_chunks(const at::Tensor& hidden_ND, const at::Tensor& w_VD, const at::Tensor& targets_N, bool want_gradient,
                double soft_cap) {
  const int64_t rows = hidden_ND.size(0);
  const int64_t most = std::max<int64_t>(16, kLogitsBytes / 4 / w_VD.size(0)), chunks = (rows + most - 1) / most;
  const int64_t step = chunks > 0 ? (rows + chunks - 1) / chunks : 1;
  std::vector<at::Tensor> logprobs, gradients;
  for (int64_t n = 0; n < rows; n += step) {
    const auto hidden = hidden_ND.slice(0, n, n + step), targets = targets_N.slice(0, n, n + step);
    const auto logits_NV = soft_capped(wide_product(hidden, w_VD), soft_cap),
               logprobs_NV = at::log_softmax(logits_NV, 1);
    logprobs.push_back(logprobs_NV.gather(1, targets.unsqueeze(1)).squeeze(1));
    if (want_gradient)
      gradients.push_back(soft_cap > 0 ? hidden_gradient_of_capped(logprobs_NV, logits_NV, soft_cap, w_VD, targets)
                                       : hidden_gradient(logprobs_NV, w_VD, targets));
  }
  const auto joined = [](const std::vector<at::Tensor>& all) { return all.size() == 1 ? all[0] : at::cat(all); };
  if (rows == 0) return {at::zeros({0}, hidden_ND.options()), at::zeros_like(hidden_ND)};
  return {joined(logprobs), want_gradient ? joined(gradients) : at::Tensor()};
}

at::Tensor sums_of(const at::Tensor& logprobs_N, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> sums;
  for (const auto& part : logprobs_N.to(at::kDouble).split_with_sizes(counts)) sums.push_back(part.sum());
  return at::stack(sums).neg_().to(logprobs_N.scalar_type());
}

struct CrossEntropyNode : torch::autograd::Function<CrossEntropyNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden_ND, const at::Tensor& head_VD,
                            const at::Tensor& targets_N, const std::vector<int64_t>& counts, at::ScalarType type,
                            bool want_gradient, double soft_cap) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;  // the operators of a node need no graph
    const auto parts = in_chunks(hidden_ND.to(type), head_VD.to(type), targets_N, want_gradient, soft_cap);
    ctx->save_for_backward({parts.dhidden_ND});
    ctx->saved_data["counts"] = counts;
    return sums_of(parts.logprobs_N, counts);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    variable_list out(7);
    const auto dhidden_ND = ctx->get_saved_variables()[0];
    if (!dhidden_ND.defined()) return out;
    out[0] = at::empty(dhidden_ND.sizes(), dhidden_ND.options().dtype(grads[0].scalar_type()));
    int64_t begin = 0, sum = 0;
    for (const int64_t count : ctx->saved_data["counts"].toIntVector()) {
      auto own = out[0].narrow(0, begin, count);
      at::mul_out(own, dhidden_ND.narrow(0, begin, count), grads[0].narrow(0, sum++, 1));
      begin += count;
    }
    return out;
  }
};

// wide_product() with a gradient of the hidden states; LibTorch has none for products with a type of their own.
struct LogitsNode : torch::autograd::Function<LogitsNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden_ND, const at::Tensor& w_VD) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward({w_VD});
    ctx->saved_data["type"] = static_cast<int64_t>(hidden_ND.scalar_type());
    return wide_product(hidden_ND.to(w_VD.scalar_type()), w_VD);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const auto w_VD = ctx->get_saved_variables()[0];
    const auto type = static_cast<at::ScalarType>(ctx->saved_data["type"].toInt());
    return {at::mm(grads[0].to(w_VD.scalar_type()), w_VD).to(type), at::Tensor()};
  }
};

}  // namespace

at::Tensor logits(const at::Tensor& hidden_ND, const at::Tensor& head_VD, at::ScalarType type) {
  const auto w_VD = head_VD.to(type);
  return w_VD.requires_grad() ? wide_product(hidden_ND.to(type), w_VD) : LogitsNode::apply(hidden_ND, w_VD);
}

at::Tensor cross_entropies(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           const std::vector<int64_t>& counts, at::ScalarType type, double soft_cap) {
  const bool want_gradient = c10::GradMode::is_enabled() && hidden_ND.requires_grad();
  return CrossEntropyNode::apply(hidden_ND, head_VD, targets_N, counts, type, want_gradient, soft_cap);
}

at::Tensor target_logprobs(const at::Tensor& hidden_ND, const at::Tensor& head_VD, const at::Tensor& targets_N,
                           at::ScalarType type, double soft_cap) {
  const c10::NoGradGuard no_grad;
  return in_chunks(hidden_ND.to(type), head_VD.to(type), targets_N, false, soft_cap).logprobs_N;
}

}  // namespace evenkeel::nn::aten
