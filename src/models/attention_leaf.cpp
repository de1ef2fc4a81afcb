#include "models/attention_leaf.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/norm.h"

namespace evenkeel {

AttentionLeaf::AttentionLeaf(const AttentionSpec& spec, const std::string& module, double norm_eps, ModelBuilder& model)
    : spec_(spec), norm_eps_(norm_eps) {
  const auto& names = spec_.names;
  const int64_t hidden = model.spec.hidden_size, queries = spec.heads * spec.head_width,
                keys = spec.kv_heads * spec.head_width;
  const auto project = [&](std::string_view site, const std::string& name, int64_t in, int64_t out, bool bias,
                           GgufPlace gguf) {
    return FrozenLinear({.site = concat(module, ".", site),
                         .module = concat(module, ".", name),
                         .in = in,
                         .out = out,
                         .role = SiteRole::kAttention,
                         .bias = bias,
                         .gguf = std::move(gguf)},
                        model);
  };
  q_ = project("q_proj", names.q, hidden, queries, spec.qkv_bias, model.gguf_place("attn_q", spec.heads));
  k_ = project("k_proj", names.k, hidden, keys, spec.qkv_bias, model.gguf_place("attn_k", spec.kv_heads));
  v_ = project("v_proj", names.v, hidden, keys, spec.qkv_bias, model.gguf_place("attn_v"));
  o_ = project("o_proj", names.o, queries, hidden, spec.o_bias, model.gguf_place("attn_output"));
  if (spec.qk_norm != QkNorm::kNone) {
    const bool per_head = spec.qk_norm == QkNorm::kPerHead;
    q_norm_ = model.take(concat(module, ".", names.q_norm, ".weight"), {per_head ? spec.head_width : queries});
    k_norm_ = model.take(concat(module, ".", names.k_norm, ".weight"), {per_head ? spec.head_width : keys});
  }
  model.spec.work.scores += static_cast<double>(2 * queries);
  model.spec.work.kept += static_cast<double>(2 * hidden + 3 * queries + 3 * keys);
}

at::Tensor AttentionLeaf::normalised(const at::Tensor& x, const at::Tensor& weight) const {
  if (!weight.defined()) return x;
  return rms_norm(spec_.qk_norm == QkNorm::kPerHead ? x.view({-1, spec_.head_width}) : x, weight, norm_eps_);
}

at::Tensor AttentionLeaf::operator()(const at::Tensor& x_TD, size_t layer, const LayerPass& pass) const {
  const int64_t tokens = x_TD.size(0), width = spec_.head_width;
  const auto& options = pass.options;
  auto q = q_(x_TD, options), k = k_(x_TD, options), v = v_(x_TD, options);
  q = normalised(q, q_norm_);
  k = normalised(k, k_norm_);
  if (spec_.clip)
    for (auto* x : {&q, &k, &v}) *x = at::clamp(*x, -*spec_.clip, *spec_.clip);
  const auto out = packed_attention(
      apply_rotary(q.view({tokens, -1, width}), pass.rotary), apply_rotary(k.view({tokens, -1, width}), pass.rotary),
      v.view({tokens, -1, width}), pass.batch.offsets, options.cache ? &options.cache->layers[layer] : nullptr,
      options.cache ? std::span<const int64_t>(options.cache->lengths) : std::span<const int64_t>());
  return o_(out, options);
}

}  // namespace evenkeel
