/// \file  Decoder-only families as data: sizes read from config.json, and which leaves stand where. A family is one
/// function that makes a DecoderSpec and one row of the table (models/olmoe.cpp is the shortest sparse one); everything
/// else follows from the leaves: tensors, sites, checkpoint names, cost.
///
///   x += attention(norm(x));  x += feed_forward(norm(x))   per layer;   norm, then the head.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "models/attention_leaf.h"
#include "models/mixture_leaf.h"
#include "models/mlp_leaf.h"

namespace evenkeel {

/// Modules outside attention and feed-forward. A layer's begin with `layers` and its number.
struct DecoderNames {
  std::string embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm", head = "lm_head";
  std::string input_norm = "input_layernorm", attention = "self_attn";
  std::string feed_forward_norm = "post_attention_layernorm", feed_forward = "mlp";
};

using FeedForwardSpec = std::variant<MlpSpec, MixtureSpec>;

/// Factors that some families multiply with; one: none.
struct DecoderScales {
  double embedding = 1;  ///< of the rows of the embedding
  double residual = 1;   ///< of what a block adds to the residual stream
  double hidden = 1;     ///< of the final hidden states: one over what logits are divided by
};

struct DecoderSpec {
  ModelSpec model;
  double rope_theta = 10000.0;
  bool tied = false;  ///< the head is the embedding
  NormSpec norm{};
  AttentionSpec attention{};
  std::function<FeedForwardSpec(int64_t layer)> feed_forward{};  ///< mixtures agree in E and k
  DecoderNames names{};
  DecoderScales scales{};
};

/// The same block in every layer, for DecoderSpec::feed_forward.
inline auto in_every_layer(FeedForwardSpec block) {
  return [block = std::move(block)](int64_t) { return block; };
}

/// What transformers' config class of a family takes for keys that config.json does not name.
struct DecoderDefaults {
  double rope_theta = 10000.0;
  int64_t max_positions = 4096;
  int64_t kv_heads = 0;  ///< 0: as many as heads
};

/// The part of config.json that the families spell alike: vocabulary, widths, layers, heads and their width
/// (`head_dim`; absent: hidden_size over heads), positions, ends, RoPE's theta, tied embeddings. Norm, QK-norm, biases
/// and feed-forward blocks are the family's to say.
/// \throws kCheckpoint on sizes that do not fit or a setting that no leaf knows: sliding windows, layers of other
/// kinds, quantised weights, dropout in attention.
DecoderSpec read_decoder(const ModelConfig& config, const DecoderDefaults& defaults = {});

/// The model of `spec`. \param config  for its text, and the file named by errors
std::unique_ptr<CausalLm> make_decoder(const DecoderSpec& spec, const ModelConfig& config, TensorSource& source);

/// The row of a family that `describe` describes.
/// \param row  what the family says of itself, without make
template <DecoderSpec (*describe)(const ModelConfig& config)>
ModelEntry decoder_entry(ModelEntry row) {
  row.make = [](const ModelConfig& config, TensorSource& source) {
    return make_decoder(describe(config), config, source);
  };
  return row;
}

}  // namespace evenkeel
