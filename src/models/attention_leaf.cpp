#include "models/attention_leaf.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

namespace evenkeel::models {
namespace {

/// Applies a scale of scores other than 1 / sqrt(head width) to the rotary table of the queries, because the kernels
/// always divide by that root.
nn::RotaryTable scaled(const nn::RotaryTable& table, const AttentionSpec& spec) {
  if (!spec.scale) return table;
  const double factor = *spec.scale * std::sqrt(static_cast<double>(spec.head_width));
  return {table.cos * factor, table.sin * factor};
}

/// Applies the steps of queries or keys whose heads are rotated in part.
at::Tensor rotated_in_part(const at::Tensor& x, const nn::HeadSteps& steps, int64_t width, const LayerPass& pass) {
  auto before = steps;
  before.rotary = {};
  const auto y = pass.engine.apply_steps(x, before);
  const auto first = pass.engine.apply_steps(y.narrow(2, 0, width), {.rotary = steps.rotary});
  return at::cat({first, y.narrow(2, width, y.size(2) - width)}, 2);
}

}  // namespace

at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const nn::AttentionSteps& steps,
                    const LayerPass& pass) {
  return pass.engine.attention(q, k, v, static_cast<int64_t>(pass.layer), steps, pass.queries_N.defined());
}

AttentionLeaf::AttentionLeaf(const AttentionSpec& spec, const std::string& module, const NormSpec& norm,
                             ModelBuilder& model)
    : spec_(spec), norm_(norm), window_(spec.windows.empty() ? 0 : spec.windows.at(static_cast<size_t>(model.layer))) {
  const auto& names = spec_.names;
  const int64_t hidden = model.spec.hidden_size, queries = spec.heads * spec.head_width,
                keys = spec.kv_heads * spec.head_width;
  const auto project = [&](std::string_view site, const std::string& name, int64_t in, int64_t out, bool bias,
                           lora::GgufPlace gguf, WeightStack* stack = nullptr) {
    return FrozenLinear({.site = concat(module, ".", site),
                         .module = concat(module, ".", name),
                         .in = in,
                         .out = out,
                         .role = lora::SiteRole::kAttention,
                         .bias = bias,
                         .normed = spec.qk_norm != QkNorm::kNone && site != "v_proj",
                         .gguf = std::move(gguf)},
                        model, stack);
  };
  WeightStack stack{.rows = queries + 2 * keys};
  if (!names.qkv.empty()) {
    qkv_ = project(names.qkv, names.qkv, hidden, queries + 2 * keys, spec.qkv_bias, model.gguf_place("attn_qkv"));
  } else {
    q_ = project("q_proj", names.q, hidden, queries, spec.qkv_bias, model.gguf_place("attn_q", spec.heads), &stack);
    k_ = project("k_proj", names.k, hidden, keys, spec.qkv_bias, model.gguf_place("attn_k", spec.kv_heads), &stack);
    v_ = project("v_proj", names.v, hidden, keys, spec.qkv_bias, model.gguf_place("attn_v"), &stack);
  }
  o_ = project("o_proj", names.o, queries, hidden, spec.o_bias, model.gguf_place("attn_output"));
  if (spec.qk_norm != QkNorm::kNone) {
    const bool per_head = spec.qk_norm == QkNorm::kPerHead;
    q_norm_ = model.take(concat(module, ".", names.q_norm, ".weight"), {per_head ? spec.head_width : queries});
    k_norm_ = model.take(concat(module, ".", names.k_norm, ".weight"), {per_head ? spec.head_width : keys});
  }
  model.spec.work.scores += static_cast<double>(2 * queries);
  model.spec.work.kept += static_cast<double>(2 * (hidden + queries + keys));
  if (spec.soft_cap > 0) model.spec.work.capped_heads += static_cast<double>(spec.heads);
}

nn::AttentionSteps AttentionLeaf::steps(const LayerPass& pass) const {
  const auto at_queries =
      scaled({pass.select_query_rows(pass.rotary.cos), pass.select_query_rows(pass.rotary.sin)}, spec_);
  const auto factors = [&](const at::Tensor& weight) { return norm_factors(weight, norm_.kind); };
  return {.q = {.norm = factors(q_norm_), .norm_eps = norm_.eps, .clip = spec_.clip, .rotary = at_queries},
          .k = {.norm = factors(k_norm_), .norm_eps = norm_.eps, .clip = spec_.clip, .rotary = pass.rotary},
          .v = {.clip = spec_.clip},
          .window = window_,
          .soft_cap = spec_.soft_cap};
}

/// Returns queries, keys and values.
std::vector<at::Tensor> AttentionLeaf::projected(const at::Tensor& in_RD, const LayerPass& pass) const {
  if (qkv_) {
    const int64_t queries = spec_.heads * spec_.head_width, keys = spec_.kv_heads * spec_.head_width;
    auto parts = (*qkv_)(in_RD, pass).split_with_sizes({queries, keys, keys}, 1);
    parts[0] = pass.select_query_rows(parts[0]);
    return parts;
  }
  if (!pass.queries_N.defined()) return FrozenLinear::together({&q_, &k_, &v_}, in_RD, pass);
  return {q_(pass.select_query_rows(in_RD), pass), k_(in_RD, pass), v_(in_RD, pass)};
}

at::Tensor AttentionLeaf::operator()(const at::Tensor& x_RD, const LayerPass& pass) const {
  const auto heads = [&](const at::Tensor& x) { return x.view({x.size(0), -1, spec_.head_width}); };
  const auto in_RD = pass.engine.block_input(x_RD);  // one conversion for all products of the block
  const auto parts = projected(in_RD, pass);
  auto q = heads(parts[0]), k = heads(parts[1]);
  const auto v = heads(parts[2]);
  auto before = steps(pass);
  if (spec_.rotary_width > 0 && spec_.rotary_width < spec_.head_width) {
    q = rotated_in_part(q, before.q, spec_.rotary_width, pass);
    k = rotated_in_part(k, before.k, spec_.rotary_width, pass);
    before.q = before.k = {};
  }
  return o_(attended(q, k, v, before, pass), pass);
}

}  // namespace evenkeel::models
