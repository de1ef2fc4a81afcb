#include "models/latent_attention_leaf.h"

#include <ATen/ATen.h>

#include <cmath>

namespace evenkeel::models {
namespace {

FrozenLinear attention_linear(const std::string& module, std::string_view name, int64_t in, int64_t out, bool bias,
                              ModelBuilder& model) {
  return FrozenLinear({.site = concat(module, ".", name),
                       .module = concat(module, ".", name),
                       .in = in,
                       .out = out,
                       .role = lora::SiteRole::kAttention,
                       .bias = bias},
                      model);
}

at::Tensor padded(const at::Tensor& x_RHP, int64_t width) {
  return x_RHP.size(2) == width ? x_RHP : at::constant_pad_nd(x_RHP, {0, width - x_RHP.size(2)});
}

/// Reorders elements 0, 1, 2, 3, ... to 0, 2, ..., 1, 3, ...
at::Tensor pairs_apart(const at::Tensor& x_RHP) {
  return x_RHP.reshape({x_RHP.size(0), x_RHP.size(1), -1, 2}).transpose(2, 3).reshape(x_RHP.sizes());
}

}  // namespace

LatentAttentionLeaf::LatentAttentionLeaf(const LatentAttentionSpec& spec, const std::string& module,
                                         ModelBuilder& model)
    : spec_(spec) {
  const int64_t hidden = model.spec.hidden_size, keys = spec.plain_width + spec.rotary_width;
  take_queries(module, model);
  kv_narrow_ =
      attention_linear(module, "kv_a_proj_with_mqa", hidden, spec.kv_rank + spec.rotary_width, spec.bias, model);
  kv_norm_ = Norm(spec.norm, module + ".kv_a_layernorm", spec.kv_rank, model);
  kv_wide_ = attention_linear(module, "kv_b_proj", spec.kv_rank, spec.heads * (spec.plain_width + spec.value_width),
                              false, model);
  o_ = attention_linear(module, "o_proj", spec.heads * spec.value_width, hidden, spec.bias, model);
  auto& work = model.spec.work;
  work.scores += static_cast<double>(spec.heads * (keys + spec.value_width));
  work.kept += static_cast<double>(2 * (hidden + spec.query_rank + spec.kv_rank) +
                                   spec.heads * (2 * keys + spec.value_width + 4 * spec.head_width()));
}

void LatentAttentionLeaf::take_queries(const std::string& module, ModelBuilder& model) {
  const int64_t hidden = model.spec.hidden_size, rank = spec_.query_rank,
                out = spec_.heads * (spec_.plain_width + spec_.rotary_width);
  if (rank == 0) {
    q_ = attention_linear(module, "q_proj", hidden, out, false, model);
    return;
  }
  q_narrow_ = attention_linear(module, "q_a_proj", hidden, rank, spec_.bias, model);
  q_norm_ = Norm(spec_.norm, module + ".q_a_layernorm", rank, model);
  q_wide_ = attention_linear(module, "q_b_proj", rank, out, false, model);
}

at::Tensor LatentAttentionLeaf::queries(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto q = q_ ? (*q_)(x_RD, pass) : (*q_wide_)((*q_norm_)((*q_narrow_)(x_RD, pass), pass.engine), pass);
  return q.view({q.size(0), spec_.heads, -1});
}

at::Tensor LatentAttentionLeaf::rotated(const at::Tensor& x_RHP, const nn::RotaryTable& table,
                                        const LayerPass& pass) const {
  const auto apart = spec_.adjacent_pairs ? pairs_apart(x_RHP) : x_RHP;
  return pass.engine.apply_steps(apart, {.rotary = table});
}

at::Tensor LatentAttentionLeaf::operator()(const at::Tensor& x_RD, const LayerPass& pass) const {
  const int64_t plain = spec_.plain_width, width = spec_.head_width();
  const auto in_RD = pass.engine.block_input(x_RD);  // one conversion for all products of the block
  const auto q = queries(pass.select_query_rows(in_RD), pass);
  const auto narrow = kv_narrow_(in_RD, pass);
  const auto wide = kv_wide_(kv_norm_(narrow.narrow(1, 0, spec_.kv_rank).contiguous(), pass.engine), pass)
                        .view({x_RD.size(0), spec_.heads, -1});
  const nn::RotaryTable at_queries{pass.select_query_rows(pass.rotary.cos), pass.select_query_rows(pass.rotary.sin)};
  const auto q_rotary = rotated(q.narrow(2, plain, spec_.rotary_width), at_queries, pass);
  const auto k_rotary = rotated(narrow.narrow(1, spec_.kv_rank, spec_.rotary_width).unsqueeze(1), pass.rotary, pass)
                            .expand({-1, spec_.heads, -1});
  // The attention divides scores by the root of the padded width.
  const double keys = static_cast<double>(plain + spec_.rotary_width);
  const double factor = spec_.scale_factor * std::sqrt(static_cast<double>(width) / keys);
  auto queries_RHP = padded(at::cat({q.narrow(2, 0, plain), q_rotary}, 2), width);
  if (factor != 1) queries_RHP = queries_RHP * factor;
  const auto out = attended(queries_RHP, padded(at::cat({wide.narrow(2, 0, plain), k_rotary}, 2), width),
                            padded(wide.narrow(2, plain, spec_.value_width), width).contiguous(), {}, pass);
  const auto values = out.view({out.size(0), spec_.heads, width}).narrow(2, 0, spec_.value_width);
  return o_(values.reshape({out.size(0), -1}), pass);
}

}  // namespace evenkeel::models
