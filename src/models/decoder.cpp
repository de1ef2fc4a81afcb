#include "models/decoder.h"

#include <ATen/ATen.h>

#include <array>
#include <set>

#include "base/error.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace evenkeel {
namespace {

constexpr std::array<std::string_view, 4> kAttention{"q_proj", "k_proj", "v_proj", "o_proj"};
constexpr double kLayerNormEps = 1e-5;

void refuse_unsupported(const ModelConfig& config) {
  config.require("attention_bias", false);
  config.require("attention_dropout", 0.0);
  config.require("hidden_act", "silu");
}

ModelSpec read_spec(std::string_view family, const ModelConfig& config) {
  ModelSpec spec;
  spec.family = family;
  spec.vocab_size = config.integer("vocab_size");
  spec.hidden_size = config.integer("hidden_size");
  spec.intermediate_size = config.integer("intermediate_size");
  spec.num_layers = config.integer("num_hidden_layers");
  spec.num_heads = config.integer("num_attention_heads");
  spec.num_kv_heads = config.has("num_key_value_heads") ? config.integer("num_key_value_heads") : spec.num_heads;
  spec.max_positions = config.integer_or("max_position_embeddings", 4096);
  spec.eos = config.token_id("eos_token_id");
  spec.pad = config.token_id("pad_token_id");
  EK_CHECK(spec.hidden_size % spec.num_heads == 0 && spec.hidden_size / spec.num_heads % 2 == 0, kCheckpoint,
           config.origin(), ": hidden_size ", spec.hidden_size, " over num_attention_heads ", spec.num_heads,
           " must be an even whole number");
  EK_CHECK(spec.num_heads % spec.num_kv_heads == 0, kCheckpoint, config.origin(), ": num_attention_heads ",
           spec.num_heads, " is not a multiple of num_key_value_heads ", spec.num_kv_heads);
  spec.head_width = spec.hidden_size / spec.num_heads;
  return spec;
}

const LoraFactors* find(const AdapterState* state, const std::string& site) {
  if (!state) return nullptr;
  const auto found = state->find(site);
  return found == state->end() ? nullptr : &found->second;
}

std::string_view last_name(std::string_view site) { return site.substr(site.rfind('.') + 1); }

}  // namespace

SiteFactors FactorsBySite::at(const std::string& prefix, std::string_view name) const {
  const std::string site = concat(prefix, name);
  return {find(adapters, site), find(base_change, site)};
}

Decoder::Decoder(const DecoderKind& kind, const ModelConfig& config)
    : spec(read_spec(kind.family, config)),
      kind_(kind),
      origin_(config.origin()),
      config_json_(config.text()),
      tied_(config.flag_or("tie_word_embeddings", false)),
      norm_eps_(kind.rms_norm ? config.number_or("rms_norm_eps", 1e-5) : kLayerNormEps),
      rope_theta_(config.rope_theta()) {
  refuse_unsupported(config);
  if (config.has("clip_qkv")) clip_qkv_ = config.number_or("clip_qkv", 0);
}

void Decoder::take(TensorSource& source, const TakeLayer& take_feed_forward) {
  embedding_ = source.take("model.embed_tokens.weight", {spec.vocab_size, spec.hidden_size});
  for (int64_t l = 0; l < spec.num_layers; ++l) {
    layers_.push_back(take_layer(l, source));
    take_feed_forward(static_cast<size_t>(l), layers_.back().prefix);
  }
  if (kind_.rms_norm) final_norm_ = source.take("model.norm.weight", {spec.hidden_size});
  head_ = tied_ ? embedding_ : source.take("lm_head.weight", {spec.vocab_size, spec.hidden_size});
  if (tied_) check_tied_copy(source);
}

Decoder::Layer Decoder::take_layer(int64_t index, TensorSource& source) {
  Layer layer;
  layer.prefix = concat("model.layers.", index, ".");
  const int64_t hidden = spec.hidden_size, kv = spec.num_kv_heads * spec.head_width;
  const auto take = [&](const std::string& name, at::IntArrayRef sizes) {
    return source.take(concat(layer.prefix, name, ".weight"), sizes);
  };
  if (kind_.rms_norm) {
    layer.input_norm = take("input_layernorm", {hidden});
    layer.post_attention_norm = take("post_attention_layernorm", {hidden});
  }
  if (kind_.qk_norm) {
    layer.q_norm = take("self_attn.q_norm", {hidden});
    layer.k_norm = take("self_attn.k_norm", {kv});
  }
  const auto project = [&](std::string_view name, int64_t in, int64_t out) {
    sites[concat(layer.prefix, "self_attn.", name)] = {0, in, out, ""};
    return take(concat("self_attn.", name), {out, in});
  };
  layer.q = project("q_proj", hidden, hidden);
  layer.k = project("k_proj", hidden, kv);
  layer.v = project("v_proj", hidden, kv);
  layer.o = project("o_proj", hidden, hidden);
  return layer;
}

// Some writers store the tied head as well; then it must be the embedding.
void Decoder::check_tied_copy(TensorSource& source) const {
  if (!source.has("lm_head.weight")) return;
  EK_CHECK(at::equal(source.take("lm_head.weight", embedding_.sizes()), embedding_), kCheckpoint, origin_,
           ": tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight");
}

void Decoder::check_batch(const PackedBatch& batch, const ForwardOptions& options) const {
  EK_CHECK(batch.tokens() > 0 && batch.ids.dim() == 1 && batch.ids.size(0) == batch.tokens() &&
               batch.positions.sizes() == batch.ids.sizes(),
           kShape, "a batch of ", batch.tokens(), " tokens has ids of ", batch.ids.sizes(), " and positions of ",
           batch.positions.sizes());
  const auto [least, most] = at::aminmax(batch.ids);
  EK_CHECK(least.item<int64_t>() >= 0 && most.item<int64_t>() < spec.vocab_size, kData, "token ids run from ",
           least.item<int64_t>(), " to ", most.item<int64_t>(), ", the model's vocabulary has ", spec.vocab_size,
           " entries");
  const int64_t last = batch.positions.max().item<int64_t>();
  EK_CHECK(last < spec.max_positions, kData, "a sequence of ", last + 1, " tokens is longer than the model's ",
           spec.max_positions, " positions");
  EK_CHECK(!options.cache || options.cache->lengths.size() + 1 == batch.offsets.size(), kShape, "a batch of ",
           batch.sequences(), " sequences with a cache of ", options.cache ? options.cache->lengths.size() : 0);
  for (const auto* state : {options.adapters, options.base_change})
    if (state) check_adapters(*state);
}

// An adapter the forward would not use is a mistake, not a detail.
void Decoder::check_adapters(const AdapterState& adapters) const {
  for (const auto& [name, factors] : adapters)
    EK_CHECK(sites.contains(name), kConfig, "an adapter names ", name, ", which the model does not have");
}

at::Tensor Decoder::norm(const at::Tensor& x_TD, const at::Tensor& weight_D) const {
  return kind_.rms_norm ? rms_norm(x_TD, weight_D, norm_eps_) : layer_norm(x_TD, {}, {}, norm_eps_);
}

at::Tensor Decoder::attention(size_t index, const at::Tensor& x_TD, const PackedBatch& batch, const RotaryTable& rotary,
                              const ForwardOptions& options) const {
  const auto& layer = layers_[index];
  const FactorsBySite beside{options.adapters, options.base_change};
  const int64_t tokens = x_TD.size(0), width = spec.head_width;
  const auto project = [&](const at::Tensor& x, const at::Tensor& w, std::string_view name) {
    return linear(x, w, beside.at(layer.prefix, concat("self_attn.", name)));
  };
  auto q = project(x_TD, layer.q, "q_proj"), k = project(x_TD, layer.k, "k_proj"), v = project(x_TD, layer.v, "v_proj");
  if (kind_.qk_norm) {
    q = rms_norm(q, layer.q_norm, norm_eps_);
    k = rms_norm(k, layer.k_norm, norm_eps_);
  }
  if (clip_qkv_)
    for (auto* x : {&q, &k, &v}) *x = at::clamp(*x, -*clip_qkv_, *clip_qkv_);
  const auto out = packed_attention(
      apply_rotary(q.view({tokens, -1, width}), rotary), apply_rotary(k.view({tokens, -1, width}), rotary),
      v.view({tokens, -1, width}), batch.offsets, options.cache ? &options.cache->layers[index] : nullptr,
      options.cache ? std::span<const int64_t>(options.cache->lengths) : std::span<const int64_t>());
  return project(out, layer.o, "o_proj");
}

at::Tensor Decoder::hidden(const PackedBatch& batch, const ForwardOptions& options,
                           const FeedForward& feed_forward) const {
  check_batch(batch, options);
  const auto rotary = rotary_table(batch.positions, spec.head_width, rope_theta_);
  const auto dtype = embedding_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto x_TD = at::embedding(embedding_, batch.ids).to(dtype);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x_TD = x_TD + attention(i, norm(x_TD, layers_[i].input_norm), batch, rotary, options);
    x_TD = x_TD + feed_forward(i, norm(x_TD, layers_[i].post_attention_norm));
  }
  for (size_t b = 0; options.cache && b + 1 < batch.offsets.size(); ++b)
    options.cache->lengths[b] += batch.offsets[b + 1] - batch.offsets[b];
  return norm(x_TD, final_norm_);
}

TensorMap Decoder::parameters() const {
  TensorMap all{{"model.embed_tokens.weight", embedding_}};
  const auto put = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) all[name + ".weight"] = tensor;
  };
  put("model.norm", final_norm_);
  if (!tied_) put("lm_head", head_);
  for (const auto& layer : layers_) {
    put(layer.prefix + "input_layernorm", layer.input_norm);
    put(layer.prefix + "post_attention_layernorm", layer.post_attention_norm);
    put(layer.prefix + "self_attn.q_norm", layer.q_norm);
    put(layer.prefix + "self_attn.k_norm", layer.k_norm);
    const std::array weights{&layer.q, &layer.k, &layer.v, &layer.o};
    for (size_t i = 0; i < weights.size(); ++i) put(concat(layer.prefix, "self_attn.", kAttention[i]), *weights[i]);
  }
  return all;
}

Sites Decoder::sites_of(std::span<const std::string> targets) const {
  std::set<std::string_view> known;
  for (const auto& [name, site] : sites) known.insert(last_name(name));
  Sites chosen;
  for (const auto& target : targets) {
    const size_t before = chosen.size();
    for (const auto& [name, site] : sites)
      if (last_name(name) == target) chosen.emplace(name, site);
    EK_CHECK(chosen.size() > before, kConfig, "target \"", target, "\" is named twice or is no linear of an ",
             spec.family, " model, known: ", join(known));
  }
  return chosen;
}

}  // namespace evenkeel
