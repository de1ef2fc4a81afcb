// OLMoE: RMSNorm, attention with QK-norm over the full width, and a sparse mixture of SwiGLU experts in every layer.
// Source: OLMoE (Muennighoff et al. 2024); layout and order of operations of transformers' OlmoeForCausalLM.
// Dimension names: T tokens, D hidden, H query heads, G key/value heads, P head width, E experts, V vocabulary.

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "models/families.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace evenkeel {
namespace {

struct Config {
  ModelSpec spec;
  bool norm_topk_prob = false, tied = false;
  double norm_eps = 1e-5, rope_theta = 10000.0;
  std::optional<double> clip_qkv;
};

struct Layer {
  std::string prefix;  // "model.layers.0."
  at::Tensor input_norm, post_attention_norm, q_norm, k_norm;
  at::Tensor q, k, v, o, router;
  ExpertWeights experts;
};

constexpr std::array<std::string_view, 4> kAttention{"q_proj", "k_proj", "v_proj", "o_proj"};
constexpr std::array<std::string_view, 3> kExpert{"gate_proj", "up_proj", "down_proj"};
constexpr std::string_view kRouter = "gate";

void refuse_unsupported(const ModelConfig& config) {
  config.require("attention_bias", false);
  config.require("attention_dropout", 0.0);
  config.require("hidden_act", "silu");
}

void check_heads(const ModelConfig& config, const ModelSpec& spec) {
  EK_CHECK(spec.hidden_size % spec.num_heads == 0 && spec.hidden_size / spec.num_heads % 2 == 0, kCheckpoint,
           config.origin(), ": hidden_size ", spec.hidden_size, " over num_attention_heads ", spec.num_heads,
           " must be an even whole number");
  EK_CHECK(spec.num_heads % spec.num_kv_heads == 0, kCheckpoint, config.origin(), ": num_attention_heads ",
           spec.num_heads, " is not a multiple of num_key_value_heads ", spec.num_kv_heads);
  EK_CHECK(spec.top_k <= spec.num_experts, kCheckpoint, config.origin(), ": num_experts_per_tok ", spec.top_k,
           " is more than num_experts ", spec.num_experts);
}

Config read_config(const ModelConfig& json) {
  refuse_unsupported(json);
  Config config;
  auto& spec = config.spec;
  spec.family = "olmoe";
  spec.vocab_size = json.integer("vocab_size");
  spec.hidden_size = json.integer("hidden_size");
  spec.intermediate_size = json.integer("intermediate_size");
  spec.num_layers = json.integer("num_hidden_layers");
  spec.num_heads = json.integer("num_attention_heads");
  spec.num_kv_heads = json.has("num_key_value_heads") ? json.integer("num_key_value_heads") : spec.num_heads;
  spec.num_experts = json.integer("num_experts");
  spec.top_k = json.integer("num_experts_per_tok");
  spec.max_positions = json.integer_or("max_position_embeddings", 4096);
  spec.eos = json.token_id("eos_token_id");
  spec.pad = json.token_id("pad_token_id");
  check_heads(json, spec);
  spec.head_width = spec.hidden_size / spec.num_heads;
  config.norm_topk_prob = json.flag_or("norm_topk_prob", false);
  config.tied = json.flag_or("tie_word_embeddings", false);
  config.norm_eps = json.number_or("rms_norm_eps", 1e-5);
  config.rope_theta = json.rope_theta();
  if (json.has("clip_qkv")) config.clip_qkv = json.number_or("clip_qkv", 0);
  for (int64_t l = 0; l < spec.num_layers; ++l) spec.moe_layers.push_back(concat("model.layers.", l, ".mlp"));
  return config;
}

Layer take_layer(const ModelSpec& spec, int64_t index, TensorSource& source) {
  Layer layer;
  layer.prefix = concat("model.layers.", index, ".");
  const int64_t hidden = spec.hidden_size, kv = spec.num_kv_heads * spec.head_width, width = spec.intermediate_size;
  const auto take = [&](const std::string& name, at::IntArrayRef sizes) {
    return source.take(concat(layer.prefix, name, ".weight"), sizes);
  };
  layer.input_norm = take("input_layernorm", {hidden});
  layer.post_attention_norm = take("post_attention_layernorm", {hidden});
  layer.q_norm = take("self_attn.q_norm", {hidden});
  layer.k_norm = take("self_attn.k_norm", {kv});
  layer.q = take("self_attn.q_proj", {hidden, hidden});
  layer.k = take("self_attn.k_proj", {kv, hidden});
  layer.v = take("self_attn.v_proj", {kv, hidden});
  layer.o = take("self_attn.o_proj", {hidden, hidden});
  layer.router = take("mlp.gate", {spec.num_experts, hidden});
  for (int64_t e = 0; e < spec.num_experts; ++e) {
    const auto expert = concat("mlp.experts.", e, ".");
    layer.experts.gate.push_back(take(expert + "gate_proj", {width, hidden}));
    layer.experts.up.push_back(take(expert + "up_proj", {width, hidden}));
    layer.experts.down.push_back(take(expert + "down_proj", {hidden, width}));
  }
  return layer;
}

class Olmoe final : public CausalLm {
 public:
  Olmoe(const ModelConfig& json, TensorSource& source) : config_(read_config(json)), config_json_(json.text()) {
    const auto& spec = config_.spec;
    embedding_ = source.take("model.embed_tokens.weight", {spec.vocab_size, spec.hidden_size});
    for (int64_t l = 0; l < spec.num_layers; ++l) layers_.push_back(take_layer(spec, l, source));
    final_norm_ = source.take("model.norm.weight", {spec.hidden_size});
    head_ = config_.tied ? embedding_ : source.take("lm_head.weight", {spec.vocab_size, spec.hidden_size});
    if (config_.tied) check_tied_copy(json, source);
  }

  const ModelSpec& spec() const override { return config_.spec; }
  const at::Tensor& head() const override { return head_; }
  const std::string& config_json() const override { return config_json_; }
  at::Tensor hidden(const PackedBatch& batch, const ForwardOptions& options) const override;
  Sites sites(std::span<const std::string> targets) const override;
  TensorMap parameters() const override;
  ForwardCost forward_cost(int64_t tokens, int64_t length, int64_t top_k, const AdapterState* adapters) const override;

 private:
  void check_tied_copy(const ModelConfig& json, TensorSource& source) const;
  void check_batch(const PackedBatch& batch, const ForwardOptions& options) const;
  void check_adapters(const AdapterState& adapters) const;
  at::Tensor attention(const Layer& layer, size_t index, const at::Tensor& x_TD, const PackedBatch& batch,
                       const RotaryTable& rotary, const ForwardOptions& options) const;
  at::Tensor mixture(const Layer& layer, size_t index, const at::Tensor& x_TD, const ForwardOptions& options) const;
  void add_attention_sites(const Layer& layer, std::string_view target, Sites& sites) const;
  void add_expert_sites(const Layer& layer, size_t index, std::string_view target, Sites& sites) const;
  at::ScalarType compute_dtype() const { return embedding_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

  Config config_;
  std::string config_json_;
  at::Tensor embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
};

// Some writers store the tied head as well; then it must be the embedding.
void Olmoe::check_tied_copy(const ModelConfig& json, TensorSource& source) const {
  if (!source.has("lm_head.weight")) return;
  EK_CHECK(at::equal(source.take("lm_head.weight", embedding_.sizes()), embedding_), kCheckpoint, json.origin(),
           ": tie_word_embeddings is true, but lm_head.weight differs from model.embed_tokens.weight");
}

void Olmoe::check_batch(const PackedBatch& batch, const ForwardOptions& options) const {
  EK_CHECK(batch.tokens() > 0 && batch.ids.dim() == 1 && batch.ids.size(0) == batch.tokens() &&
               batch.positions.sizes() == batch.ids.sizes(),
           kShape, "a batch of ", batch.tokens(), " tokens has ids of ", batch.ids.sizes(), " and positions of ",
           batch.positions.sizes());
  const auto [least, most] = at::aminmax(batch.ids);
  EK_CHECK(least.item<int64_t>() >= 0 && most.item<int64_t>() < spec().vocab_size, kData, "token ids run from ",
           least.item<int64_t>(), " to ", most.item<int64_t>(), ", the model's vocabulary has ", spec().vocab_size,
           " entries");
  const int64_t last = batch.positions.max().item<int64_t>();
  EK_CHECK(last < spec().max_positions, kData, "a sequence of ", last + 1, " tokens is longer than the model's ",
           spec().max_positions, " positions");
  EK_CHECK(!options.cache || options.cache->lengths.size() + 1 == batch.offsets.size(), kShape, "a batch of ",
           batch.sequences(), " sequences with a cache of ", options.cache ? options.cache->lengths.size() : 0);
  for (const auto* state : {options.adapters, options.base_change})
    if (state) check_adapters(*state);
}

// An adapter the forward would not use is a mistake, not a detail.
void Olmoe::check_adapters(const AdapterState& adapters) const {
  size_t used = 0;
  const FactorsBySite view{&adapters, nullptr};
  for (const auto& layer : layers_) {
    for (const auto name : kAttention) used += view.at(layer.prefix, concat("self_attn.", name)).adapter != nullptr;
    for (const auto name : kExpert) used += view.at(layer.prefix, concat("mlp.experts.", name)).adapter != nullptr;
    used += view.at(layer.prefix, "mlp.gate").adapter != nullptr;
  }
  if (used == adapters.size()) return;
  const std::array<std::string, 8> all{"q_proj",    "k_proj",  "v_proj",    "o_proj",
                                       "gate_proj", "up_proj", "down_proj", "gate"};
  const auto known = sites(all);
  for (const auto& [name, factors] : adapters)
    EK_CHECK(known.contains(name), kConfig, "an adapter names ", name, ", which the model does not have");
}

at::Tensor Olmoe::attention(const Layer& layer, size_t index, const at::Tensor& x_TD, const PackedBatch& batch,
                            const RotaryTable& rotary, const ForwardOptions& options) const {
  const FactorsBySite beside{options.adapters, options.base_change};
  const int64_t tokens = x_TD.size(0), width = spec().head_width;
  const auto project = [&](const at::Tensor& x, const at::Tensor& w, std::string_view name) {
    return linear(x, w, beside.at(layer.prefix, concat("self_attn.", name)));
  };
  auto q = rms_norm(project(x_TD, layer.q, "q_proj"), layer.q_norm, config_.norm_eps);
  auto k = rms_norm(project(x_TD, layer.k, "k_proj"), layer.k_norm, config_.norm_eps);
  auto v = project(x_TD, layer.v, "v_proj");
  if (config_.clip_qkv)
    for (auto* x : {&q, &k, &v}) *x = at::clamp(*x, -*config_.clip_qkv, *config_.clip_qkv);
  const auto out = packed_attention(
      apply_rotary(q.view({tokens, -1, width}), rotary), apply_rotary(k.view({tokens, -1, width}), rotary),
      v.view({tokens, -1, width}), batch.offsets, options.cache ? &options.cache->layers[index] : nullptr,
      options.cache ? std::span<const int64_t>(options.cache->lengths) : std::span<const int64_t>());
  return project(out, layer.o, "o_proj");
}

at::Tensor Olmoe::mixture(const Layer& layer, size_t index, const at::Tensor& x_TD,
                          const ForwardOptions& options) const {
  const FactorsBySite beside{options.adapters, options.base_change};
  const auto& key = spec().moe_layers[index];
  RouterOptions router = options.router;
  if (router.top_k == 0) router.top_k = spec().top_k;
  const auto phi = router.modulation.find(key);
  const auto logits_TE = linear(x_TD, layer.router, beside.at(layer.prefix, "mlp.gate"));
  const auto routing =
      route(logits_TE, router, phi == router.modulation.end() ? at::Tensor() : phi->second, config_.norm_topk_prob);
  if (options.routing)
    (*options.routing)[key] = {logits_TE.requires_grad() ? logits_TE : at::Tensor(),
                               at::bincount(routing.experts.reshape({-1}), {}, spec().num_experts), x_TD.size(0)};
  const auto expert = [&](std::string_view name) { return beside.at(layer.prefix, concat("mlp.experts.", name)); };
  return experts(x_TD, routing, layer.experts, {expert("gate_proj"), expert("up_proj"), expert("down_proj")});
}

at::Tensor Olmoe::hidden(const PackedBatch& batch, const ForwardOptions& options) const {
  check_batch(batch, options);
  const auto rotary = rotary_table(batch.positions, spec().head_width, config_.rope_theta);
  auto x_TD = at::embedding(embedding_, batch.ids).to(compute_dtype());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& layer = layers_[i];
    x_TD = x_TD + attention(layer, i, rms_norm(x_TD, layer.input_norm, config_.norm_eps), batch, rotary, options);
    x_TD = x_TD + mixture(layer, i, rms_norm(x_TD, layer.post_attention_norm, config_.norm_eps), options);
  }
  for (size_t b = 0; options.cache && b + 1 < batch.offsets.size(); ++b)
    options.cache->lengths[b] += batch.offsets[b + 1] - batch.offsets[b];
  return rms_norm(x_TD, final_norm_, config_.norm_eps);
}

void Olmoe::add_attention_sites(const Layer& layer, std::string_view target, Sites& sites) const {
  const std::array<const at::Tensor*, 4> weights{&layer.q, &layer.k, &layer.v, &layer.o};
  for (size_t i = 0; i < kAttention.size(); ++i)
    if (target == kAttention[i])
      sites[concat(layer.prefix, "self_attn.", target)] = {0, weights[i]->size(1), weights[i]->size(0), ""};
}

void Olmoe::add_expert_sites(const Layer& layer, size_t index, std::string_view target, Sites& sites) const {
  const auto& key = spec().moe_layers[index];
  if (target == kRouter) sites[key + ".gate"] = {0, layer.router.size(1), layer.router.size(0), ""};
  const std::array<const at::Tensor*, 3> weights{&layer.experts.gate[0], &layer.experts.up[0], &layer.experts.down[0]};
  for (size_t i = 0; i < kExpert.size(); ++i)
    if (target == kExpert[i])
      sites[concat(key, ".experts.", target)] = {spec().num_experts, weights[i]->size(1), weights[i]->size(0), key};
}

Sites Olmoe::sites(std::span<const std::string> targets) const {
  Sites all;
  for (const auto& target : targets) {
    const size_t before = all.size();
    for (size_t i = 0; i < layers_.size(); ++i) {
      add_attention_sites(layers_[i], target, all);
      add_expert_sites(layers_[i], i, target, all);
    }
    EK_CHECK(all.size() > before, kConfig, "target \"", target, "\" is named twice or is no linear of an ",
             spec().family, " model, known: ", join(kAttention), ", ", join(kExpert), ", ", kRouter);
  }
  return all;
}

TensorMap Olmoe::parameters() const {
  TensorMap all{{"model.embed_tokens.weight", embedding_}, {"model.norm.weight", final_norm_}};
  if (!config_.tied) all["lm_head.weight"] = head_;
  for (const auto& layer : layers_) {
    const auto put = [&](const std::string& name, const at::Tensor& t) {
      all[concat(layer.prefix, name, ".weight")] = t;
    };
    put("input_layernorm", layer.input_norm);
    put("post_attention_layernorm", layer.post_attention_norm);
    put("self_attn.q_norm", layer.q_norm);
    put("self_attn.k_norm", layer.k_norm);
    put("self_attn.q_proj", layer.q);
    put("self_attn.k_proj", layer.k);
    put("self_attn.v_proj", layer.v);
    put("self_attn.o_proj", layer.o);
    put("mlp.gate", layer.router);
    for (size_t e = 0; e < layer.experts.gate.size(); ++e) {
      put(concat("mlp.experts.", e, ".gate_proj"), layer.experts.gate[e]);
      put(concat("mlp.experts.", e, ".up_proj"), layer.experts.up[e]);
      put(concat("mlp.experts.", e, ".down_proj"), layer.experts.down[e]);
    }
  }
  return all;
}

ForwardCost Olmoe::forward_cost(int64_t tokens, int64_t length, int64_t top_k, const AdapterState* adapters) const {
  const auto& s = spec();
  const auto t = static_cast<double>(tokens), hidden = static_cast<double>(s.hidden_size);
  const double per_layer = t * static_cast<double>(s.num_layers);
  const auto kv = static_cast<double>(s.num_kv_heads * s.head_width), k = static_cast<double>(top_k);
  ForwardCost cost;
  cost.attention_projections = per_layer * 2 * hidden * (hidden + kv);
  cost.attention_scores = per_layer * 2 * hidden * static_cast<double>(length);
  cost.router = per_layer * hidden * static_cast<double>(s.num_experts);
  cost.experts = per_layer * k * 3 * hidden * static_cast<double>(s.intermediate_size);
  cost.head = t * hidden * static_cast<double>(s.vocab_size);
  if (!adapters) return cost;
  for (const auto& [name, lora] : *adapters) {
    const auto values = static_cast<double>(lora.rank() * (lora.a.size(-1) + lora.b.size(-2)));
    if (lora.a.dim() == 3)
      cost.lora_experts += t * k * values;
    else
      (name.ends_with(".mlp.gate") ? cost.lora_router : cost.lora_attention) += t * values;
  }
  return cost;
}

}  // namespace

std::unique_ptr<CausalLm> make_olmoe(const ModelConfig& config, TensorSource& source) {
  return std::make_unique<Olmoe>(config, source);
}

}  // namespace evenkeel
