/// \file  What the decoder-only families share: embedding, normalised residual blocks with rotary attention, head, and
/// the checks of what arrives. A family owns a Decoder and brings the feed-forward part. Private to the models room.
/// Dimension names: T tokens, D hidden, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "models/checkpoint.h"

namespace evenkeel {

/// Where families differ outside their feed-forward part.
struct DecoderKind {
  std::string_view family;
  bool rms_norm = true;  ///< RMSNorm with a weight and the config's rms_norm_eps, or LayerNorm without parameters, 1e-5
  bool qk_norm = false;  ///< RMSNorm over the full width of queries and of keys
};

/// What stands beside the weights of one forward, looked up by site name.
struct FactorsBySite {
  const AdapterState* adapters;
  const AdapterState* base_change;

  SiteFactors at(const std::string& prefix, std::string_view name) const;
};

class Decoder {
 public:
  /// Reads the shared part of config.json. \throws kCheckpoint on sizes that do not fit or an unsupported setting.
  Decoder(const DecoderKind& kind, const ModelConfig& config);

  /// Takes the tensors of embedding, attention and head; `take_feed_forward(layer, prefix)` after each layer's own.
  using TakeLayer = std::function<void(size_t layer, const std::string& prefix)>;
  void take(TensorSource& source, const TakeLayer& take_feed_forward);

  /// Final hidden states [T, D]: x += attention(norm(x)), x += feed_forward(layer, norm(x)) per layer, norm at the end.
  using FeedForward = std::function<at::Tensor(size_t layer, const at::Tensor& x_TD)>;
  at::Tensor hidden(const PackedBatch& batch, const ForwardOptions& options, const FeedForward& feed_forward) const;

  /// `prefix` + ".q_proj" and so on of a layer, e.g. "model.layers.3.".
  const std::string& prefix(size_t layer) const { return layers_[layer].prefix; }
  const at::Tensor& head() const { return head_; }
  const std::string& config_json() const { return config_json_; }

  /// Base tensors of embedding, attention, norms and head, by checkpoint name.
  TensorMap parameters() const;
  /// Those of `sites` whose last name is in `targets`.
  Sites sites_of(std::span<const std::string> targets) const;

  ModelSpec spec;  ///< a family fills in what concerns its feed-forward part
  Sites sites;     ///< every adaptable linear; take() enters attention's, the family its own

 private:
  struct Layer {
    std::string prefix;
    at::Tensor input_norm, post_attention_norm, q_norm, k_norm;  // undefined where the kind has none
    at::Tensor q, k, v, o;
  };

  Layer take_layer(int64_t index, TensorSource& source);
  void check_tied_copy(TensorSource& source) const;
  void check_batch(const PackedBatch& batch, const ForwardOptions& options) const;
  void check_adapters(const AdapterState& adapters) const;
  at::Tensor norm(const at::Tensor& x_TD, const at::Tensor& weight_D) const;
  at::Tensor attention(size_t layer, const at::Tensor& x_TD, const PackedBatch& batch, const RotaryTable& rotary,
                       const ForwardOptions& options) const;

  DecoderKind kind_;
  std::string origin_, config_json_;
  bool tied_ = false;
  double norm_eps_ = 1e-5, rope_theta_ = 10000.0;
  std::optional<double> clip_qkv_;
  at::Tensor embedding_, final_norm_, head_;
  std::vector<Layer> layers_;
};

}  // namespace evenkeel
