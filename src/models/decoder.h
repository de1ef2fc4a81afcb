/// \file  Builds decoder-only models from a description: sizes from config.json, and the leaves (attention, norm,
/// feed-forward block) of each layer.
/// A family consists of one function that returns a DecoderSpec and one registry entry; models/olmoe.cpp is the
/// shortest sparse example. Tensors, sites, checkpoint names and cost follow from the leaves. A model computes
///
///   x += norm(attention(norm(x)));  x += norm(feed_forward(norm(x)))   per layer;   norm, then the head.
///
/// Most families have only the inner norms. DecoderNames says which of the four a family has.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/attention_leaf.h"
#include "models/attention_windows.h"
#include "models/latent_attention_leaf.h"
#include "models/mixture_leaf.h"
#include "models/mlp_leaf.h"

namespace evenkeel::models {

/// Module names outside attention and feed-forward blocks. Names of modules of a layer begin with `layers` and the
/// layer's number. A norm without a name does not exist in the family.
struct DecoderNames {
  std::string embedding = "model.embed_tokens", layers = "model.layers.", final_norm = "model.norm", head = "lm_head";
  std::string input_norm = "input_layernorm", attention = "self_attn";
  std::string feed_forward_norm = "post_attention_layernorm", feed_forward = "mlp";
  std::string attention_output_norm{}, feed_forward_output_norm{};  ///< norms of the outputs of the blocks

  /// Sets the names of the norms of families after OLMo 2, which have them behind the blocks only.
  void put_norms_behind_blocks() {
    input_norm = feed_forward_norm = "";
    attention_output_norm = "post_attention_layernorm";
    feed_forward_output_norm = "post_feedforward_layernorm";
  }
};

/// Describes a feed-forward block, dense or sparse.
using FeedForwardSpec = std::variant<MlpSpec, MixtureSpec>;

/// Factors of some families; 1: not used.
struct DecoderScales {
  double embedding = 1;           ///< factor of the embedding
  bool rounds_embedding = false;  ///< true: that factor is rounded to the type in which the embedding is stored
  double residual = 1;            ///< factor of each block's output before it is added to the residual stream
  double hidden = 1;              ///< factor of the final hidden states: 1 / the divisor of the logits
};

/// Rotary positions of some layers, which differ from DecoderSpec::rope.
struct LocalPositions {
  nn::RopeSpec rope{};
  std::vector<bool> layers{};  ///< one entry per layer; true: the layer has these positions
};

/// Describes a model.
struct DecoderSpec {
  ModelSpec model;
  nn::RopeSpec rope{};
  std::optional<LocalPositions> local_rope{};
  bool tied = false;  ///< true: the head is the embedding
  NormSpec norm{};
  AttentionSpec attention{};
  std::optional<LatentAttentionSpec> latent_attention{};  ///< set: stands in every layer in place of `attention`
  /// Number of layers that a checkpoint may hold after the last layer of the model. They are not run, and their tensors
  /// are not loaded.
  int64_t unread_layers = 0;
  /// Block of each layer; all mixtures must have the same E and k.
  std::function<FeedForwardSpec(int64_t layer)> feed_forward{};
  DecoderNames names{};
  DecoderScales scales{};
};

/// Returns a function for DecoderSpec::feed_forward that gives every layer the same block.
inline auto in_every_layer(FeedForwardSpec block) {
  return [block = std::move(block)](int64_t) { return block; };
}

/// Values of absent config.json keys, as in the family's config class in transformers.
struct DecoderDefaults {
  double rope_theta = 10000.0;
  int64_t max_positions = 4096;
  int64_t kv_heads = 0;         ///< 0: the number of heads
  int64_t head_width = 0;       ///< 0: hidden_size / heads
  bool own_head_width = false;  ///< true: `head_width` is used, whatever the key says
  /// Share of each head that is rotated if config.json has no such key; nullopt: only whole heads are supported.
  std::optional<double> partial_rotary{};
  WindowRule window{};
  std::optional<double> local_theta{};  ///< theta of layers with a window; nullopt: all layers have the same positions
  bool has_long_rope = false;           ///< true: read_long_positions() reads the positions
  bool tied = false;
};

/// End of the message that refuses a rate of dropout (ModelConfig::require()).
inline constexpr std::string_view kNoDropout =
    ", because training here has no dropout: set it to 0.0 in a copy of config.json; inference does not use it";

/// Reads the config.json keys that all families share: vocabulary, widths, layers, heads, head width (`head_dim`, or
/// else hidden_size / heads), positions, end tokens, RoPE (models/rope_config.h), sliding windows
/// (models/attention_windows.h), and tied embeddings. The family
/// itself sets norm, QK-norm, biases and feed-forward blocks.
/// \throws kCheckpoint when sizes do not fit, or on an unsupported setting: other layer types,
/// quantised weights, attention dropout
DecoderSpec read_decoder(const ModelConfig& config, const DecoderDefaults& defaults = {});

/// Builds the model that `spec` describes.
/// \param config  provides the text of config.json, and its path for errors
std::unique_ptr<CausalLm> make_decoder(const DecoderSpec& spec, const ModelConfig& config, TensorSource& source);

/// Completes a registry entry with a make() that builds what `describe` describes.
/// \param row  the entry without make
template <DecoderSpec (*describe)(const ModelConfig& config)>
ModelEntry decoder_entry(ModelEntry row) {
  row.make = [](const ModelConfig& config, TensorSource& source) {
    return make_decoder(describe(config), config, source);
  };
  return row;
}

}  // namespace evenkeel::models
