#include "methods/ub_smoe_sources.h"

#include <ATen/ATen.h>

#include <map>

namespace evenkeel::methods::ubsmoe {
namespace {

/// Multiplies the terms of each expert by own / given, so that they have the norm of its own Gt.
/// \param given_LE  the norms of the terms \return bool [L, E], false: the term is zero
at::Tensor brought_to_norm(ExpertLayers& layers, const at::Tensor& own_LE, const at::Tensor& given_LE) {
  const auto some_LE = given_LE.gt(0);
  const auto ratio_LE = (own_LE / given_LE).masked_fill(some_LE.logical_not(), 0);
  for (size_t l = 0; l < layers.tensors.size(); ++l)
    for (auto& term : layers.tensors[l].terms)
      term = term * ratio_LE[static_cast<int64_t>(l)].to(term.scalar_type()).view({-1, 1, 1});
  return some_LE;
}

at::Tensor placebo(const at::Tensor& share_LE, const at::Tensor& norm_LE, ExpertLayers& layers) {
  const auto other_LE = next_idle_LE(share_LE.gt(0));
  for (size_t l = 0; l < layers.tensors.size(); ++l)
    for (auto& term : layers.tensors[l].terms) term = term.index_select(0, other_LE[static_cast<int64_t>(l)]);
  const auto some_LE = brought_to_norm(layers, norm_LE, norm_LE.gather(1, other_LE));
  const auto is_another_LE = other_LE.ne(at::arange(other_LE.size(1), other_LE.options()));
  return share_LE * some_LE.logical_and(is_another_LE);
}

at::Tensor oracle(const StepView& step, const at::Tensor& share_LE, const at::Tensor& norm_LE, ExpertLayers& layers) {
  std::map<std::string, std::vector<at::Tensor>> gradients;  // by layer, in the order of ExpertLayers
  for (const auto& [name, site] : step.view.sites)
    if (site.experts > 0)
      for (const auto& gradient : {step.reference->at(name).a, step.reference->at(name).b})
        gradients[site.moe_layer].push_back(gradient);
  std::vector<at::Tensor> norms;
  for (size_t l = 0; l < layers.tensors.size(); ++l) {
    layers.tensors[l].terms = gradients.at(layers.names[l]);
    norms.push_back(step.arithmetic.expert_norms(layers.tensors[l].terms));
  }
  return share_LE * brought_to_norm(layers, norm_LE, at::stack(norms));
}

}  // namespace

at::Tensor next_idle_LE(const at::Tensor& idle_LE) {
  const int64_t experts = idle_LE.size(1);
  const auto self_E = at::arange(experts, idle_LE.options().dtype(at::kLong));
  const auto place_LE = at::where(idle_LE, self_E, experts);  // `experts`: not idle
  const auto from_here_LE = std::get<0>(place_LE.flip(1).cummin(1)).flip(1);
  const auto after_LE = at::cat({from_here_LE.slice(1, 1), place_LE.new_full({place_LE.size(0), 1}, experts)}, 1);
  const auto around_LE = at::where(after_LE.eq(experts), from_here_LE.slice(1, 0, 1), after_LE);
  return at::where(around_LE.eq(experts), self_E, around_LE);
}

at::Tensor take_source(PgSource source, const StepView& step, const at::Tensor& share_LE, const at::Tensor& norm_LE,
                       ExpertLayers& layers) {
  switch (source) {
    case PgSource::kOwn:
      return share_LE;
    case PgSource::kPlacebo:
      return placebo(share_LE, norm_LE, layers);
    case PgSource::kMomentum:
      return share_LE.mean(1, /*keepdim=*/true).expand_as(share_LE).contiguous();
    case PgSource::kOracle:
      return oracle(step, share_LE, norm_LE, layers);
  }
  fail(kInternal, "pg_source out of range");
}

}  // namespace evenkeel::methods::ubsmoe
