#include "models/attention_leaf.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/plain/error.h"
#include "nn/attention/aten_attention.h"
#include "nn/attention/cached_attention.h"
#include "nn/dense/aten_linear.h"

namespace evenkeel::models {
namespace {

/// Returns whether the batch contains all cached tokens of its sequences.
bool begins(const nn::KvCache& cache, std::span<const int64_t> offsets) {
  for (size_t b = 0; b < cache.sequences.size(); ++b)
    if (cache.sequences[b].length() != offsets[b + 1] - offsets[b]) return false;
  return true;
}

/// Applies a scale of scores other than 1 / sqrt(head width) to the rotary table of the queries, because the kernels
/// always divide by that root.
nn::RotaryTable scaled(const nn::RotaryTable& table, const AttentionSpec& spec) {
  if (!spec.scale) return table;
  const double factor = *spec.scale * std::sqrt(static_cast<double>(spec.head_width));
  return {table.cos * factor, table.sin * factor};
}

/// Stores the keys and values of the batch in the cache, then computes attention over the cache.
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t layer, int64_t window,
                    double soft_cap, const LayerPass& pass) {
  if (pass.window) {
    pass.window->put(layer, k, v);
    return pass.window->attend(layer, q, pass.queries_N.defined(), window, soft_cap);
  }
  const std::span<const int64_t> offsets = pass.batch.offsets;
  const auto& cache = *pass.options.cache;
  nn::store_keys(k.contiguous(), v.contiguous(), offsets, cache, layer);
  if (!pass.queries_N.defined() && begins(cache, offsets))
    return nn::packed_attention(q, k, v, offsets, {.window = window, .soft_cap = soft_cap});
  if (!pass.queries_N.defined()) return nn::cached_attention(q, offsets, cache, layer, window, soft_cap);
  std::vector<int64_t> one_each(offsets.size());
  std::iota(one_each.begin(), one_each.end(), 0);
  return nn::cached_attention(q, one_each, cache, layer, window, soft_cap);
}

/// Applies the steps of queries or keys whose heads are rotated in part.
at::Tensor rotated_in_part(const at::Tensor& x, const nn::HeadSteps& steps, int64_t width, const LayerPass& pass) {
  const auto stepped = pass.layout ? nn::aten::apply_steps : nn::apply_steps;
  auto before = steps;
  before.rotary = {};
  const auto y = stepped(x, before);
  const auto first = stepped(y.narrow(2, 0, width), {.rotary = steps.rotary});
  return at::cat({first, y.narrow(2, width, y.size(2) - width)}, 2);
}

}  // namespace

AttentionLeaf::AttentionLeaf(const AttentionSpec& spec, const std::string& module, const NormSpec& norm,
                             ModelBuilder& model)
    : spec_(spec), norm_(norm), window_(spec.windows.empty() ? 0 : spec.windows.at(static_cast<size_t>(model.layer))) {
  const auto& names = spec_.names;
  const int64_t hidden = model.spec.hidden_size, queries = spec.heads * spec.head_width,
                keys = spec.kv_heads * spec.head_width;
  const auto project = [&](std::string_view site, const std::string& name, int64_t in, int64_t out, bool bias,
                           lora::GgufPlace gguf) {
    return FrozenLinear({.site = concat(module, ".", site),
                         .module = concat(module, ".", name),
                         .in = in,
                         .out = out,
                         .role = lora::SiteRole::kAttention,
                         .bias = bias,
                         .gguf = std::move(gguf)},
                        model);
  };
  if (!names.qkv.empty()) {
    qkv_ = project(names.qkv, names.qkv, hidden, queries + 2 * keys, spec.qkv_bias, model.gguf_place("attn_qkv"));
  } else {
    q_ = project("q_proj", names.q, hidden, queries, spec.qkv_bias, model.gguf_place("attn_q", spec.heads));
    k_ = project("k_proj", names.k, hidden, keys, spec.qkv_bias, model.gguf_place("attn_k", spec.kv_heads));
    v_ = project("v_proj", names.v, hidden, keys, spec.qkv_bias, model.gguf_place("attn_v"));
  }
  o_ = project("o_proj", names.o, queries, hidden, spec.o_bias, model.gguf_place("attn_output"));
  if (spec.qk_norm != QkNorm::kNone) {
    const bool per_head = spec.qk_norm == QkNorm::kPerHead;
    q_norm_ = model.take(concat(module, ".", names.q_norm, ".weight"), {per_head ? spec.head_width : queries});
    k_norm_ = model.take(concat(module, ".", names.k_norm, ".weight"), {per_head ? spec.head_width : keys});
  }
  model.spec.work.scores += static_cast<double>(2 * queries);
  model.spec.work.kept += static_cast<double>(2 * (hidden + queries + keys));
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

at::Tensor AttentionLeaf::operator()(const at::Tensor& x_RD, size_t layer, const LayerPass& pass) const {
  const auto& options = pass.options;
  const auto heads = [&](const at::Tensor& x) { return x.view({x.size(0), -1, spec_.head_width}); };
  // The products inside the block share one conversion of the input.
  const auto in_RD = pass.layout ? x_RD.to(nn::aten::inner_type(x_RD, options.compute)) : x_RD;
  const auto parts = projected(in_RD, pass);
  auto q = heads(parts[0]), k = heads(parts[1]);
  const auto v = heads(parts[2]);
  auto before = steps(pass);
  if (spec_.rotary_width > 0 && spec_.rotary_width < spec_.head_width) {
    q = rotated_in_part(q, before.q, spec_.rotary_width, pass);
    k = rotated_in_part(k, before.k, spec_.rotary_width, pass);
    before.q = before.k = {};
  }
  if (!options.cache && pass.layout) return o_(nn::aten::packed_attention(q, k, v, *pass.layout, before), pass);
  if (!options.cache) return o_(nn::packed_attention(q, k, v, pass.batch.offsets, before, pass.batch.rows_T), pass);
  const auto stepped = pass.layout ? nn::aten::apply_steps : nn::apply_steps;
  return o_(attended(stepped(q, before.q), stepped(k, before.k), stepped(v, before.v), static_cast<int64_t>(layer),
                     window_, spec_.soft_cap, pass),
            pass);
}

}  // namespace evenkeel::models
