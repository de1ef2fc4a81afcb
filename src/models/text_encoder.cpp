// Post-norm: x = norm(x + attention(x)), x = norm(x + mlp(x)); every linear and norm has a bias.
// Dimension names: T tokens, D hidden, H heads, P head width.
#include "models/text_encoder.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "data/example.h"
#include "models/causal_lm.h"
#include "nn/dense/norm.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::models {
namespace {

struct EncoderFamily {
  std::string_view model_type, prefix;
  bool positions_skip_pad;  // RoBERTa numbers positions from pad + 1; a pad token has position pad
  int64_t pad;              // default if config.json has none
};
constexpr std::array kEncoders{EncoderFamily{"bert", "bert.", false, 0}, EncoderFamily{"roberta", "roberta.", true, 1},
                               EncoderFamily{"xlm-roberta", "roberta.", true, 1}};

const EncoderFamily& encoder_family(const ModelConfig& config) {
  const auto type = config.string_or("model_type", "");
  std::vector<std::string_view> known;
  for (const auto& family : kEncoders) {
    if (family.model_type == type) return family;
    known.push_back(family.model_type);
  }
  fail(kCheckpoint, config.origin(), ": model_type is \"", type, "\", known encoders: ", join(known));
}

void refuse_unsupported_encoder(const ModelConfig& config) {
  config.require("hidden_act", "gelu");
  config.require("position_embedding_type", "absolute");
  config.require("is_decoder", false);
  config.require("add_cross_attention", false);
}

EncoderSpec read_spec(const ModelConfig& config, const EncoderFamily& family, int64_t layer) {
  refuse_unsupported_encoder(config);
  EncoderSpec spec;
  spec.family = family.model_type;
  spec.vocab_size = config.integer("vocab_size");
  spec.hidden_size = config.integer("hidden_size");
  spec.intermediate_size = config.integer("intermediate_size");
  spec.num_heads = config.integer("num_attention_heads");
  spec.num_layers = config.integer("num_hidden_layers");
  spec.layer = layer;
  spec.pad = config.has("pad_token_id") ? config.token_id("pad_token_id") : family.pad;
  spec.max_tokens = config.integer("max_position_embeddings") - (family.positions_skip_pad ? spec.pad + 1 : 0);
  spec.norm_eps = config.number_or("layer_norm_eps", 1e-12);
  EK_CHECK(spec.hidden_size % spec.num_heads == 0, kCheckpoint, config.origin(), ": hidden_size ", spec.hidden_size,
           " is not a multiple of num_attention_heads ", spec.num_heads);
  EK_CHECK(spec.max_tokens > 0, kCheckpoint, config.origin(), ": max_position_embeddings leaves no position after pad ",
           spec.pad);
  EK_CHECK(layer >= 0 && layer <= spec.num_layers, kConfig, config.origin(), ": layer ", layer,
           " is asked for, allowed: 0 .. ", spec.num_layers);
  return spec;
}

std::vector<size_t> order_by_length(std::span<const std::vector<int64_t>> sequences) {
  std::vector<size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t i, size_t j) { return sequences[i].size() < sequences[j].size(); });
  return order;
}

/// Returns for each token its row in a batch that has the sequences in `order`.
at::Tensor rows_in_order(std::span<const std::vector<int64_t>> sequences, std::span<const size_t> order) {
  std::vector<int64_t> starts(sequences.size()), rows;
  int64_t next = 0;
  for (const size_t i : order) {
    starts[i] = next;
    next += static_cast<int64_t>(sequences[i].size());
  }
  for (size_t i = 0; i < sequences.size(); ++i)
    for (size_t t = 0; t < sequences[i].size(); ++t) rows.push_back(starts[i] + static_cast<int64_t>(t));
  return at::tensor(rows, at::kLong);
}

}  // namespace

TextEncoder::TextEncoder(const ModelConfig& config, TensorSource& source, int64_t layer) {
  const auto& family = encoder_family(config);
  spec_ = read_spec(config, family, layer);
  origin_ = config.origin();
  compute_.engine = source.engine();
  positions_skip_pad_ = family.positions_skip_pad;
  if (source.has(concat(family.prefix, "embeddings.word_embeddings.weight"))) prefix_ = family.prefix;
  take_embeddings(config, source);
  for (int64_t l = 0; l < layer; ++l) layers_.push_back(take_layer(l, source));
  leave_the_rest(source);
}

TextEncoder TextEncoder::load(const fs::path& folder, int64_t layer, const BaseStorage& storage) {
  EK_CHECK(is_folder(folder), kCheckpoint, folder.string(), " is not a folder");
  check_no_adapter_beside(folder);
  const auto config = ModelConfig::load(folder / "config.json");
  encoder_family(config);  // rejects another family before its tensors are opened
  const auto source = folder_source(folder, storage);
  TextEncoder encoder(config, *source, layer);
  source->finish();
  return encoder;
}

void TextEncoder::take_embeddings(const ModelConfig& config, TensorSource& source) {
  const auto take = [&](std::string_view name, int64_t rows) {
    return source.take(concat(prefix_, "embeddings.", name, ".weight"), {rows, spec_.hidden_size});
  };
  words_ = take("word_embeddings", spec_.vocab_size);
  positions_ = take("position_embeddings", config.integer("max_position_embeddings"));
  type_ = take("token_type_embeddings", config.integer_or("type_vocab_size", 2)).select(0, 0);
  embedding_norm_ = take_norm(source, "embeddings.LayerNorm");
}

TextEncoder::Layer TextEncoder::take_layer(int64_t index, TensorSource& source) const {
  const auto prefix = concat("encoder.layer.", index, ".");
  const int64_t hidden = spec_.hidden_size, width = spec_.intermediate_size;
  Layer layer;
  layer.query = take_linear(source, prefix + "attention.self.query", hidden, hidden);
  layer.key = take_linear(source, prefix + "attention.self.key", hidden, hidden);
  layer.value = take_linear(source, prefix + "attention.self.value", hidden, hidden);
  layer.attention_output = take_linear(source, prefix + "attention.output.dense", hidden, hidden);
  layer.attention_norm = take_norm(source, prefix + "attention.output.LayerNorm");
  layer.intermediate = take_linear(source, prefix + "intermediate.dense", width, hidden);
  layer.output = take_linear(source, prefix + "output.dense", hidden, width);
  layer.output_norm = take_norm(source, prefix + "output.LayerNorm");
  return layer;
}

// Discards the tensors of layers that are not run, of the pooler and of heads.
void TextEncoder::leave_the_rest(TensorSource& source) const {
  for (int64_t l = spec_.layer; l < spec_.num_layers; ++l) source.leave(concat(prefix_, "encoder.layer.", l, "."));
  for (const auto* inside : {"pooler.", "embeddings.position_ids", "embeddings.token_type_ids"})
    source.leave(prefix_ + inside);
  for (const auto* head : {"lm_head.", "cls.", "classifier.", "qa_outputs."}) source.leave(head);
}

TextEncoder::Affine TextEncoder::take_linear(TensorSource& source, const std::string& name, int64_t out,
                                             int64_t in) const {
  const auto full = concat(prefix_, name, ".weight");
  auto weight = source.take(full, {out, in});
  check_product(origin_, full, weight, words_.scalar_type(), source.engine());
  return {std::move(weight), source.take(concat(prefix_, name, ".bias"), {out})};
}

// Takes weight and bias of a norm. The first BERT checkpoints call them gamma and beta.
TextEncoder::Affine TextEncoder::take_norm(TensorSource& source, const std::string& name) const {
  const bool old = source.has(concat(prefix_, name, ".gamma"));
  return {source.take(concat(prefix_, name, old ? ".gamma" : ".weight"), {spec_.hidden_size}),
          source.take(concat(prefix_, name, old ? ".beta" : ".bias"), {spec_.hidden_size})};
}

void TextEncoder::check(std::span<const std::vector<int64_t>> sequences) const {
  EK_CHECK(!sequences.empty(), kInternal, "an encoder was given no sequence");
  for (const auto& ids : sequences) {
    const auto length = static_cast<int64_t>(ids.size());
    EK_CHECK(length > 0 && length <= spec_.max_tokens, kData, "a sequence of ", length, " tokens, allowed: 1 .. ",
             spec_.max_tokens);
    const auto [least, most] = std::minmax_element(ids.begin(), ids.end());
    EK_CHECK(*least >= 0 && *most < spec_.vocab_size, kData, "token ids run from ", *least, " to ", *most,
             ", the encoder's vocabulary has ", spec_.vocab_size, " entries");
  }
}

at::Tensor TextEncoder::positions(std::span<const std::vector<int64_t>> sequences) const {
  std::vector<int64_t> all;
  for (const auto& ids : sequences) {
    int64_t next = positions_skip_pad_ ? spec_.pad + 1 : 0;
    for (const int64_t id : ids) all.push_back(positions_skip_pad_ && id == spec_.pad ? spec_.pad : next++);
  }
  return at::tensor(all, at::kLong);
}

at::Tensor TextEncoder::project(const at::Tensor& x_TI, const Affine& affine) const {
  return nn::engine_of(compute_).linear(x_TI, affine.weight, compute_).add_(affine.bias);
}

at::Tensor TextEncoder::norm(const at::Tensor& x_TD, const Affine& affine) const {
  return nn::layer_norm(x_TD, affine.weight, affine.bias, spec_.norm_eps);
}

at::Tensor TextEncoder::attention(const Layer& layer, const at::Tensor& x_TD, std::span<const int64_t> offsets) const {
  const auto heads = [&](const Affine& affine) {
    return project(x_TD, affine).view({x_TD.size(0), spec_.num_heads, -1});
  };
  return project(
      nn::engine_of(compute_).full_attention(heads(layer.query), heads(layer.key), heads(layer.value), offsets),
      layer.attention_output);
}

at::Tensor TextEncoder::hidden(std::span<const std::vector<int64_t>> sequences) const {
  const at::NoGradGuard no_grad;
  check(sequences);
  // Sequences of the same length come next to each other, because an engine may compute them in one call.
  const auto order = order_by_length(sequences);
  std::vector<std::vector<int64_t>> sorted;
  for (const size_t i : order) sorted.push_back(sequences[i]);
  const auto x_TD = hidden_in_order(sorted);
  return x_TD.index_select(0, rows_in_order(sequences, order).to(x_TD.device()));
}

at::Tensor TextEncoder::embedded(const at::Tensor& ids_T, const at::Tensor& positions_T) const {
  const auto dtype = words_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto rows = [&](const at::Tensor& table, const at::Tensor& index_T) {
    return at::embedding(table, index_T.to(table.device())).to(dtype);
  };
  return norm(rows(words_, ids_T) + type_.to(dtype) + rows(positions_, positions_T), embedding_norm_);
}

at::Tensor TextEncoder::hidden_in_order(std::span<const std::vector<int64_t>> sequences) const {
  const auto batch = data::pack_ids(sequences);
  auto x_TD = embedded(batch.ids, positions(sequences));
  for (const auto& layer : layers_) {
    x_TD = norm(attention(layer, x_TD, batch.offsets) + x_TD, layer.attention_norm);
    x_TD = norm(project(at::gelu(project(x_TD, layer.intermediate)), layer.output) + x_TD, layer.output_norm);
  }
  return x_TD;
}

}  // namespace evenkeel::models
