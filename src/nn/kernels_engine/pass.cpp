#include "nn/kernels_engine/pass.h"

#include <ATen/ATen.h>

#include <numeric>

#include "nn/attention/cached_attention.h"
#include "nn/dense/linear.h"
#include "nn/dense/norm.h"
#include "nn/moe/routing.h"

namespace evenkeel::nn {

KernelsPass::KernelsPass(const PassInput& input) : Pass(input) {
  for (const auto& rope : in_.ropes) rotary_.push_back(rotary_table(in_.batch.positions, in_.rotary_width, rope));
}

std::vector<at::Tensor> KernelsPass::linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                             bool /*exact*/) const {
  std::vector<at::Tensor> outputs;
  for (const auto& layer : layers) outputs.push_back(linear(x_RI, layer.weight, layer.factors, in_.compute.products));
  return outputs;
}

at::Tensor KernelsPass::rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const {
  return nn::rms_norm(x_RD, weight_D, eps);
}

at::Tensor KernelsPass::apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const {
  return nn::apply_steps(x_RHP, steps);
}

Routing KernelsPass::route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                           bool norm_topk_prob) const {
  return nn::route(logits_RE, options, phi_E, norm_topk_prob);
}

at::Tensor KernelsPass::experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                                size_t /*layer*/) const {
  return nn::experts(x_RD, routing, of.weights, of.factors, in_.compute.products);
}

at::Tensor KernelsPass::packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const AttentionSteps& steps) const {
  return packed_attention(q, k, v, in_.batch.offsets, steps, in_.batch.rows_T);
}

/// Returns whether the batch contains all cached tokens of its sequences.
bool KernelsPass::begins_sequences() const {
  const auto& offsets = in_.batch.offsets;
  for (size_t b = 0; b < in_.cache->sequences.size(); ++b)
    if (in_.cache->sequences[b].length() != offsets[b + 1] - offsets[b]) return false;
  return true;
}

at::Tensor KernelsPass::cached(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, int64_t layer,
                               const AttentionSteps& steps, bool only_last) const {
  const auto q = apply_steps(q_in, steps.q), k = apply_steps(k_in, steps.k), v = apply_steps(v_in, steps.v);
  const std::span<const int64_t> offsets = in_.batch.offsets;
  store_keys(k.contiguous(), v.contiguous(), offsets, *in_.cache, layer);
  if (!only_last && begins_sequences())
    return packed_attention(q, k, v, offsets, {.window = steps.window, .soft_cap = steps.soft_cap});
  if (!only_last) return cached_attention(q, offsets, *in_.cache, layer, steps.window, steps.soft_cap);
  std::vector<int64_t> one_each(offsets.size());
  std::iota(one_each.begin(), one_each.end(), 0);
  return cached_attention(q, one_each, *in_.cache, layer, steps.window, steps.soft_cap);
}

at::Tensor KernelsPass::of_tokens(const at::Tensor& x_R) const {
  return in_.batch.rows_T.defined() ? x_R.index_select(0, in_.batch.rows_T) : x_R;
}

void KernelsPass::count(const std::string& layer, const at::Tensor& experts_RK) {
  const auto experts_TK = of_tokens(experts_RK);
  auto into = in_.routing.begin();
  int64_t begin = 0;
  for (const auto& end : in_.batch.micro_batch_ends()) {
    (*into++)[layer].counts = at::bincount(experts_TK.slice(0, begin, end.tokens).reshape({-1}), {}, in_.experts);
    begin = end.tokens;
  }
}

}  // namespace evenkeel::nn
