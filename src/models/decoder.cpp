#include "models/decoder.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <memory>

#include "base/plain/error.h"
#include "base/plain/text.h"
#include "models/end_tokens.h"
#include "models/graph_key.h"
#include "models/rope_config.h"
#include "models/unread_keys.h"
#include "nn/dense/index.h"
#include "nn/engines/engine_of.h"
#include "nn/kernels/primitives/workspace_pool.h"

namespace evenkeel::models {
namespace {

int64_t read_head_width(const ModelConfig& config, const DecoderSpec& spec, const DecoderDefaults& defaults) {
  if (defaults.own_head_width) return defaults.head_width;
  if (config.has("head_dim")) {
    const int64_t width = config.integer("head_dim");
    EK_CHECK(width % 2 == 0, kCheckpoint, config.origin(), ": head_dim ", width, " must be even");
    return width;
  }
  if (defaults.head_width > 0 && !config.view().json().contains("head_dim")) return defaults.head_width;
  const int64_t hidden = spec.model.hidden_size, heads = spec.attention.heads;
  EK_CHECK(hidden % heads == 0 && hidden / heads % 2 == 0, kCheckpoint, config.origin(), ": hidden_size ", hidden,
           " over num_attention_heads ", heads, " must be an even whole number");
  return hidden / heads;
}

/// Returns the number of key/value heads. Null means one per head, even if the family has another default.
int64_t read_kv_heads(const ModelConfig& config, int64_t heads, const DecoderDefaults& defaults) {
  constexpr std::string_view key = "num_key_value_heads";
  if (config.has(key)) return config.integer(key);
  return config.view().json().contains(key) || defaults.kv_heads == 0 ? heads : defaults.kv_heads;
}

/// Discards the frequencies of rotary positions, which older versions of transformers stored as "inv_freq" of each
/// layer or of the model. config.json gives them, and transformers ignores the tensors.
void leave_frequencies(const DecoderNames& names, int64_t layers, TensorSource& source) {
  constexpr std::string_view kFrequencies = "rotary_emb.inv_freq";
  for (int64_t layer = 0; layer < layers; ++layer)
    source.leave(concat(names.layers, layer, ".", names.attention, ".", kFrequencies));
  source.leave(concat("model.", kFrequencies));
}

/// Rejects keys that change what transformers computes for any family.
void refuse_what_no_leaf_knows(const ModelConfig& config) {
  config.require("attention_dropout", 0.0, kNoDropout);
  config.require("is_causal", true);
  config.require("is_encoder_decoder", false);
  for (const auto* key : {"quantization_config", "per_layer_config", "attention_chunk_size", "kv_sharing_modes"})
    config.require(key, nullptr);
  warn_of_own_code(config);
}

double rounded(double value, at::ScalarType type) {
  return at::scalar_tensor(value, at::kDouble).to(type).to(at::kDouble).item<double>();
}

at::Tensor times(const at::Tensor& x, double factor) { return factor == 1 ? x : x * factor; }

class Decoder final : public CausalLm {
 public:
  Decoder(const DecoderSpec& spec, const ModelConfig& config, TensorSource& source);
  ~Decoder() override { nn::kernels::release_workspaces(); }

  const ModelSpec& spec() const override { return built_.spec; }
  at::Tensor hidden(const data::PackedBatch& batch, const ForwardOptions& options) const override;
  ForwardOptions prepared(ForwardOptions options) const override;
  const nn::FrozenWeight& head() const override { return head_; }
  const lora::Sites& all_sites() const override { return built_.sites; }
  TensorMap parameters() const override { return built_.parameters; }
  const std::string& config_json() const override { return config_json_; }
  at::ScalarType activations() const override {
    return embedding_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  }

 private:
  struct Layer {
    std::optional<Norm> input_norm;
    std::variant<AttentionLeaf, LatentAttentionLeaf> attention;
    std::optional<Norm> attention_output_norm, feed_forward_norm;
    std::variant<MlpLeaf, MixtureLeaf> feed_forward;
    std::optional<Norm> feed_forward_output_norm;
  };
  struct Built {
    ModelSpec spec;
    lora::Sites sites;
    TensorMap parameters;
  };

  void add_layer(int64_t index, const DecoderSpec& spec, ModelBuilder& model);
  void take_head(const DecoderSpec& spec, const std::string& origin, ModelBuilder& model, TensorSource& source);
  std::shared_ptr<const nn::PreparedFactors> factors(const ForwardOptions& options) const;
  nn::PassInput pass_input(const data::PackedBatch& batch, const ForwardOptions& options) const;
  at::Tensor through(nn::Pass& pass, const ForwardOptions& options) const;
  at::Tensor recorded(const data::PackedBatch& batch, const ForwardOptions& options) const;
  nn::NormedSum layer_output(size_t index, const nn::NormedSum& in, const LayerPass& pass) const;
  void check_batch(const data::PackedBatch& batch, const ForwardOptions& options) const;
  void check_adapters(const lora::AdapterState& adapters) const;

  Built built_;
  std::string config_json_;
  std::vector<nn::RopeSpec> ropes_;  // of all layers, or then of layers with positions of their own
  std::vector<bool> local_;          // which layers have these; empty: none
  int64_t rotary_width_;             // width of the rotary tables
  DecoderScales scales_;
  at::Tensor embedding_;
  nn::FrozenWeight head_;
  Norm final_norm_;
  std::vector<Layer> layers_;
};

/// Returns how many elements of each head are rotated.
int64_t rotary_width(const DecoderSpec& spec) {
  if (spec.latent_attention) return spec.latent_attention->rotary_width;
  return spec.attention.rotary_width > 0 ? spec.attention.rotary_width : spec.attention.head_width;
}

/// Records the sizes of a mixture in the model's spec. All mixtures of a model must agree.
void note_experts(ModelSpec& model, const MixtureSpec& mixture, const std::string& module) {
  if (model.moe_layers.empty()) {
    model.num_experts = mixture.experts;
    model.top_k = mixture.top_k;
    model.gates = mixture.gate;
  }
  EK_CHECK(model.num_experts == mixture.experts && model.top_k == mixture.top_k, kInternal, "family ", model.family,
           ": ", module, " has ", mixture.experts, " experts with ", mixture.top_k, " per token, a layer before it ",
           model.num_experts, " with ", model.top_k);
  model.moe_layers.push_back(module);
}

Decoder::Decoder(const DecoderSpec& spec, const ModelConfig& config, TensorSource& source)
    : config_json_(config.text()), ropes_{spec.rope}, rotary_width_(rotary_width(spec)), scales_(spec.scales) {
  if (spec.local_rope) ropes_.push_back(spec.local_rope->rope), local_ = spec.local_rope->layers;
  EK_CHECK(spec.feed_forward, kInternal, "family ", spec.model.family, " describes no feed-forward block");
  ModelBuilder model(spec.model, source, config.origin());
  model.spec.num_kv_heads = spec.latent_attention ? spec.latent_attention->heads : spec.attention.kv_heads;
  model.spec.head_width = spec.latent_attention ? spec.latent_attention->head_width() : spec.attention.head_width;
  model.spec.norm_behind_experts = !spec.names.feed_forward_output_norm.empty();
  embedding_ = model.take(spec.names.embedding + ".weight", {model.spec.vocab_size, model.spec.hidden_size});
  model.activations = activations();
  if (scales_.rounds_embedding) scales_.embedding = rounded(scales_.embedding, embedding_.scalar_type());
  for (int64_t layer = 0; layer < model.spec.num_layers; ++layer) add_layer(layer, spec, model);
  final_norm_ = Norm(spec.norm, spec.names.final_norm, model.spec.hidden_size, model);
  take_head(spec, config.origin(), model, source);
  leave_frequencies(spec.names, model.spec.num_layers, source);
  for (int64_t i = 0; i < spec.unread_layers; ++i)
    source.leave(concat(spec.names.layers, model.spec.num_layers + i, "."));
  built_ = {std::move(model.spec), std::move(model.sites), std::move(model.parameters)};
}

void Decoder::add_layer(int64_t index, const DecoderSpec& spec, ModelBuilder& model) {
  model.layer = index;
  const auto& names = spec.names;
  const auto module = [&](const std::string& name) { return concat(names.layers, index, ".", name); };
  const auto feed_forward = [&]() -> std::variant<MlpLeaf, MixtureLeaf> {
    const auto block = spec.feed_forward(index);
    if (const auto* mlp = std::get_if<MlpSpec>(&block)) return MlpLeaf(*mlp, module(names.feed_forward), model);
    const auto& mixture = std::get<MixtureSpec>(block);
    note_experts(model.spec, mixture, module(names.feed_forward));
    return MixtureLeaf(mixture, module(names.feed_forward), model);
  };
  const auto attention = [&]() -> std::variant<AttentionLeaf, LatentAttentionLeaf> {
    if (spec.latent_attention) return LatentAttentionLeaf(*spec.latent_attention, module(names.attention), model);
    return AttentionLeaf(spec.attention, module(names.attention), spec.norm, model);
  };
  const auto norm = [&](const std::string& name) {
    return name.empty() ? std::nullopt : std::optional(Norm(spec.norm, module(name), model.spec.hidden_size, model));
  };
  layers_.push_back({norm(names.input_norm), attention(), norm(names.attention_output_norm),
                     norm(names.feed_forward_norm), feed_forward(), norm(names.feed_forward_output_norm)});
}

// Takes the head. Some writers also store a tied head; it must then equal the embedding.
void Decoder::take_head(const DecoderSpec& spec, const std::string& origin, ModelBuilder& model, TensorSource& source) {
  const auto name = spec.names.head + ".weight";
  model.spec.work.head = static_cast<double>(model.spec.hidden_size) * static_cast<double>(model.spec.vocab_size);
  head_ = spec.tied ? nn::FrozenWeight(embedding_)
                    : model.take_weight(name, {model.spec.vocab_size, model.spec.hidden_size});
  if (!spec.tied || !source.has(name)) return;
  EK_CHECK(at::equal(source.take(name, embedding_.sizes()), embedding_), kCheckpoint, origin,
           ": tie_word_embeddings is true, but ", name, " differs from ", spec.names.embedding, ".weight");
}

void Decoder::check_batch(const data::PackedBatch& batch, const ForwardOptions& options) const {
  const int64_t given = (batch.rows_T.defined() ? batch.rows_T : batch.ids).size(0);
  EK_CHECK(batch.tokens() > 0 && batch.ids.dim() == 1 && given == batch.tokens() &&
               batch.positions.sizes() == batch.ids.sizes(),
           kShape, "a batch of ", batch.tokens(), " tokens has ids of ", batch.ids.sizes(), " and positions of ",
           batch.positions.sizes());
  const auto ids = nn::numbers(batch.ids);
  const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
  EK_CHECK(*least >= 0 && *most < spec().vocab_size, kData, "token ids run from ", *least, " to ", *most,
           ", the model's vocabulary has ", spec().vocab_size, " entries");
  const auto positions = nn::numbers(batch.positions);
  const int64_t last = *std::max_element(positions.begin(), positions.end());
  EK_CHECK(last < spec().max_positions, kData, "a sequence of ", last + 1, " tokens is longer than the model's ",
           spec().max_positions, " positions");
  EK_CHECK(!options.cache || !batch.rows_T.defined(), kInternal, "a cache has no room for rows that tokens share");
  EK_CHECK(!options.last_only || options.cache, kInternal, "the last rows alone are asked for without a cache");
  const auto parts = batch.micro_batch_ends();
  // The last sequence may be padding (data::padded()).
  const bool is_whole =
      parts.back().tokens == batch.tokens() || parts.back().tokens == batch.offsets[batch.offsets.size() - 2];
  EK_CHECK(is_whole && (options.routing.empty() || options.routing.size() == parts.size()), kInternal, "a batch of ",
           parts.size(), " micro-batches and ", batch.tokens(), " tokens, the last ends at ", parts.back().tokens,
           ", routing is asked for of ", options.routing.size());
  for (const auto* state : {options.adapters, options.base_change})
    if (state) check_adapters(*state);
}

// Checks that every site of an adapter exists in the model, because the forward pass would ignore others.
void Decoder::check_adapters(const lora::AdapterState& adapters) const {
  for (const auto& [name, factors] : adapters)
    EK_CHECK(built_.sites.contains(name), kConfig, "an adapter names ", name, ", which the model does not have");
}

/// Returns the factors of all layers as the engine computes with them: those that prepared() has converted, if any.
std::shared_ptr<const nn::PreparedFactors> Decoder::factors(const ForwardOptions& options) const {
  if (options.factors) return options.factors;
  const auto experts = [&](size_t i) -> std::optional<nn::ExpertLayer> {
    const auto* mixture = std::get_if<MixtureLeaf>(&layers_[i].feed_forward);
    return mixture ? std::optional(mixture->expert_layer(options)) : std::nullopt;
  };
  return nn::engine_of(options.compute)
      .prepare({.adapters = options.adapters,
                .base_change = options.base_change,
                .layers = layers_.size(),
                .experts = experts,
                .has_experts = !spec().moe_layers.empty(),
                .activations = activations()},
               options.compute);
}

ForwardOptions Decoder::prepared(ForwardOptions options) const {
  options.factors = factors(options);
  return options;
}

nn::PassInput Decoder::pass_input(const data::PackedBatch& batch, const ForwardOptions& options) const {
  return {.batch = batch,
          .compute = options.compute,
          .device = device(),
          .rotary_width = rotary_width_,
          .ropes = ropes_,
          .cache = options.cache,
          .last_only = options.last_only,
          .experts = spec().moe_layers.empty() ? 0 : spec().num_experts,
          .top_k = options.router.top_k > 0 ? options.router.top_k : spec().top_k,
          .routing = options.routing,
          .records_logits = options.router.records_logits};
}

/// Applies a norm that the family may lack.
at::Tensor normed(const std::optional<Norm>& norm, const at::Tensor& x_RD, const LayerPass& pass) {
  return norm ? (*norm)(x_RD, pass.engine) : x_RD;
}

/// Adds the output of a block to the residual stream, and applies the norm of the next block, which the family may
/// lack.
nn::NormedSum added(const at::Tensor& x_RD, const at::Tensor& y_RD, const std::optional<Norm>& next,
                    const LayerPass& pass, bool for_products) {
  if (next) return next->of_sum(x_RD, y_RD, pass.engine, for_products);
  const auto sum_RD = x_RD + y_RD;
  return {sum_RD, sum_RD};
}

/// Returns the residual stream after layer `index`, and its norm for what follows.
nn::NormedSum Decoder::layer_output(size_t index, const nn::NormedSum& in, const LayerPass& pass) const {
  const auto& layer = layers_[index];
  const auto through = [&](const auto& block, const at::Tensor& in_RD) {
    return std::visit([&](const auto& leaf) { return leaf(in_RD, pass); }, block);
  };
  const auto scaled = [&](const std::optional<Norm>& norm, const at::Tensor& y_RD) {
    return times(normed(norm, y_RD, pass), scales_.residual);
  };
  const bool is_last = index + 1 == layers_.size(), is_dense = std::holds_alternative<MlpLeaf>(layer.feed_forward);
  const auto attended_RD = through(layer.attention, in.norm_RD);
  const auto mid = added(pass.select_query_rows(in.sum_RD), scaled(layer.attention_output_norm, attended_RD),
                         layer.feed_forward_norm, pass, /*for_products=*/is_dense);
  const auto y_RD = through(layer.feed_forward, mid.norm_RD);
  return added(mid.sum_RD, scaled(layer.feed_forward_output_norm, y_RD),
               is_last ? std::optional(final_norm_) : layers_[index + 1].input_norm, pass, /*for_products=*/!is_last);
}

/// Computes the final hidden states with the layers of a pass.
at::Tensor Decoder::through(nn::Pass& pass, const ForwardOptions& options) const {
  const auto of_layer = [&](size_t i) {
    const bool only_last = options.last_only && i + 1 == layers_.size();  // no later layer reads the other rows
    return LayerPass{.engine = pass,
                     .options = options,
                     .rotary = pass.rotary(local_.empty() || !local_[i] ? 0 : 1),
                     .layer = i,
                     .queries_N = only_last ? pass.last_rows_B() : at::Tensor()};
  };
  const auto x_RD = times(at::embedding(embedding_, pass.ids_R()).to(activations()), scales_.embedding);
  nn::NormedSum stream{x_RD, normed(layers_.front().input_norm, x_RD, of_layer(0))};
  for (size_t i = 0; i < layers_.size(); ++i) stream = layer_output(i, stream, of_layer(i));
  return times(stream.norm_RD, scales_.hidden);
}

at::Tensor Decoder::recorded(const data::PackedBatch& batch, const ForwardOptions& options) const {
  auto input = pass_input(batch, options);
  input.factors = options.factors;
  return options.graphs->run({.input = input,
                              .key = graph_key(options),
                              .factors = [&] { return factors(options); },
                              .layers = [&](nn::Pass& pass) { return through(pass, options); }});
}

at::Tensor Decoder::hidden(const data::PackedBatch& batch, const ForwardOptions& options) const {
  check_batch(batch, options);
  if (options.cache) options.cache->extend(batch.offsets);
  if (options.graphs && (options.cache || c10::GradMode::is_enabled())) return recorded(batch, options);
  auto input = pass_input(batch, options);
  input.factors = factors(options);
  const auto pass = nn::engine_of(options.compute).begin(input);
  auto hidden_RD = through(*pass, options);
  pass->end();
  return hidden_RD;
}

void read_positions(const ModelConfig& config, const DecoderDefaults& defaults, DecoderSpec& spec) {
  RopeSizes sizes{
      .theta = defaults.rope_theta, .max_positions = spec.model.max_positions, .head_width = spec.attention.head_width};
  if (defaults.has_long_rope) {
    const auto read = read_long_positions(config, sizes);
    spec.rope = read.rope;
    spec.attention.rotary_width = read.rotary_width;
    spec.model.max_positions = read.longest;
    return;
  }
  if (!defaults.local_theta) {
    sizes.whole_heads = !defaults.partial_rotary;
    if (defaults.partial_rotary)
      sizes.head_width = spec.attention.rotary_width =
          read_rotary_width(config, spec.attention.head_width, *defaults.partial_rotary);
    spec.rope = read_rope(config, sizes);
    return;
  }
  const auto ropes = read_ropes_by_kind(config, sizes, *defaults.local_theta);
  spec.rope = ropes.full;
  spec.local_rope = {.rope = ropes.sliding, .layers = read_sliding_layers(config, spec.model, defaults.window)};
}

}  // namespace

DecoderSpec read_decoder(const ModelConfig& config, const DecoderDefaults& defaults) {
  constexpr int64_t kMostLayers = int64_t{1} << 20;  // as many as a model may have tensors (shape_source())
  refuse_what_no_leaf_knows(config);
  DecoderSpec spec{.model = {.family = config.string_or("model_type", ""),
                             .vocab_size = config.integer("vocab_size"),
                             .hidden_size = config.integer("hidden_size"),
                             .num_layers = config.integer("num_hidden_layers", kMostLayers),
                             .max_positions = config.integer_or("max_position_embeddings", defaults.max_positions),
                             .end_of_text = end_behind_texts(config),
                             .pad = config.token_id("pad_token_id")},
                   .tied = config.flag_or("tie_word_embeddings", defaults.tied)};
  // Not among the initialisers: g++ 12 destroys it twice when a later initialiser throws.
  spec.model.eos = ends_of_generation(config);
  auto& heads = spec.attention;
  heads.heads = config.integer("num_attention_heads");
  heads.kv_heads = read_kv_heads(config, heads.heads, defaults);
  heads.head_width = read_head_width(config, spec, defaults);
  read_positions(config, defaults, spec);
  heads.windows = read_windows(config, spec.model, defaults.window);
  EK_CHECK(heads.heads % heads.kv_heads == 0, kCheckpoint, config.origin(), ": num_attention_heads ", heads.heads,
           " is not a multiple of num_key_value_heads ", heads.kv_heads);
  return spec;
}

std::unique_ptr<CausalLm> make_decoder(const DecoderSpec& spec, const ModelConfig& config, TensorSource& source) {
  return std::make_unique<Decoder>(spec, config, source);
}

}  // namespace evenkeel::models
