#include "nn/aten_engine/pass.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "nn/aten_engine/attention.h"
#include "nn/aten_engine/core_products.h"
#include "nn/aten_engine/linear.h"
#include "nn/aten_engine/norm.h"
#include "nn/aten_engine/routing.h"
#include "nn/aten_engine/view_of_cache.h"
#include "nn/cuda_kernels/norm.h"
#include "nn/dense/norm.h"

namespace evenkeel::nn::aten {
namespace {

const lora::LoraFactors* factors_in(const lora::AdapterState& state, const std::string& site) {
  const auto found = state.find(site);
  return found == state.end() ? nullptr : &found->second;
}

}  // namespace

PassFactors::PassFactors(const ModelFactors& factors, const Compute& compute)
    : multiplied(with_cores_multiplied(factors.adapters)), experts(factors.layers) {
  const auto type = compute.inner == at::kFloat ? factors.activations : compute.inner;
  adapters = converted_factors(factors.adapters, type);
  adapters.merge(converted_factors(&multiplied, type));
  change = converted_factors(factors.base_change, type);
  for (size_t i = 0; i < factors.layers; ++i)
    if (const auto layer = factors.experts(i)) experts[i] = layer_factors(layer->weights, layer->factors);
  if (factors.has_experts) pack_layers(experts, type);
}

AtenPass::AtenPass(const PassInput& input)
    : AtenPass(input, Layout::of(input.batch, input.rotary_width, input.ropes, input.device),
               input.cache ? view_of(*input.cache, input.batch.offsets, input.last_only) : nullptr) {}

AtenPass::AtenPass(const PassInput& input, Layout layout, std::unique_ptr<CacheView> cache)
    : Pass(input), layout_(std::move(layout)), cache_(std::move(cache)) {
  if (in_.experts > 0)
    numbers_ =
        SlotNumbers::of(layout_.ids_R.size(0), std::clamp<int64_t>(in_.top_k, 1, in_.experts), in_.experts, in_.device);
}

at::Tensor AtenPass::block_input(const at::Tensor& x_RD) const { return x_RD.to(inner_type(x_RD, in_.compute)); }

std::vector<at::Tensor> AtenPass::linears(const at::Tensor& x_RI, std::span<const LinearLayer> layers,
                                          bool exact) const {
  std::vector<Projection> projections;
  for (const auto& layer : layers) {
    check_linear_shapes(x_RI, layer.weight.values_OI);
    const auto converted =
        exact ? lora::SiteFactors{}
              : lora::SiteFactors{factors_in(factors().adapters, layer.site), factors_in(factors().change, layer.site)};
    const auto* multiplied = factors_in(factors().multiplied, layer.site);
    const lora::SiteFactors given{multiplied ? multiplied : layer.factors.adapter, layer.factors.change};
    projections.push_back(projection_of(layer.weight, given, converted));
    projections.back().normed = layer.normed;
  }
  return aten::linears(x_RI, projections, exact ? x_RI.scalar_type() : inner_type(x_RI, in_.compute));
}

at::Tensor AtenPass::rms_norm(const at::Tensor& x_RD, const at::Tensor& weight_D, double eps) const {
  check_norm_shapes(x_RD, weight_D);
  return aten::rms_norm(x_RD, weight_D, eps);
}

NormedSum AtenPass::add_norm(const at::Tensor& x_RD, const at::Tensor& added_RD, const at::Tensor& weight_D, double eps,
                             bool for_products) const {
  const auto type = for_products ? inner_type(x_RD, in_.compute) : x_RD.scalar_type();
  if (auto own = cuda::residual_norm(x_RD, added_RD, weight_D, eps, type)) return *std::move(own);
  return Pass::add_norm(x_RD, added_RD, weight_D, eps, for_products);
}

at::Tensor AtenPass::apply_steps(const at::Tensor& x_RHP, const HeadSteps& steps) const {
  return aten::apply_steps(x_RHP, steps);
}

Routing AtenPass::route(const at::Tensor& logits_RE, const RouterOptions& options, const at::Tensor& phi_E,
                        bool norm_topk_prob) const {
  return aten::route(logits_RE, options, phi_E, norm_topk_prob);
}

at::Tensor AtenPass::experts(const at::Tensor& x_RD, const Routing& routing, const ExpertLayer& of,
                             size_t layer) const {
  return aten::experts(x_RD, routing, of.weights, factors().experts[layer], numbers_, inner_type(x_RD, in_.compute));
}

at::Tensor AtenPass::packed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const AttentionSteps& steps) const {
  return aten::packed_attention(q, k, v, layout_, steps);
}

at::Tensor AtenPass::cached(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer,
                            const AttentionSteps& steps, bool only_last) const {
  const auto [q_steps, k_steps] = apply_steps_together(q, k, steps, layout_);
  cache_->put(layer, k_steps, aten::apply_steps(v, steps.v));
  return cache_->attend(layer, q_steps, only_last, steps.window, steps.soft_cap);
}

at::Tensor AtenPass::of_tokens(const at::Tensor& x_R) const {
  return layout_.copies.defined() ? gather_rows(x_R, layout_.copies) : x_R;
}

void AtenPass::count(const std::string& layer, const at::Tensor& experts_RK) {
  choices_.layers.push_back(layer), choices_.experts_RK.push_back(experts_RK);
}

void AtenPass::end() {
  if (cache_) cache_->write_back();
  if (!choices_.layers.empty())
    count_choices(choices_.layers, at::stack(choices_.experts_RK), layout_.copies, in_.experts, in_.batch, in_.routing);
}

}  // namespace evenkeel::nn::aten
