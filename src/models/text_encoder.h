/// \file  Runs text encoders (BERT, RoBERTa, XLM-RoBERTa), which give a vector for each token of a text. Metrics use
/// them to compare texts.
/// Source: BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019). Layout and order of operations follow transformers'
/// BertModel and RobertaModel.
/// Dimension names: T tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel::models {

/// Describes an encoder.
struct EncoderSpec {
  std::string family;  ///< "bert", "roberta", "xlm-roberta"
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_heads = 0;
  int64_t num_layers = 0;  ///< layers of the checkpoint
  int64_t layer = 0;       ///< layer whose hidden states are returned, 0 to num_layers; 0: the embeddings
  int64_t max_tokens = 0;  ///< longest sequence in tokens, including special tokens
  int64_t pad = 0;         ///< token id of padding
  double norm_eps = 1e-12;
};

/// A frozen encoder up to one layer. Later layers are not loaded. Threads: several threads may use one object.
class TextEncoder {
 public:
  /// Takes the tensors that config.json describes from `source`. Their names may have the family's prefix ("roberta.").
  /// Heads, pooler and the layers above `layer` are discarded.
  /// \throws kCheckpoint on an unsupported setting or family; kConfig when the model does not have the layer
  TextEncoder(const ModelConfig& config, TensorSource& source, int64_t layer);

  /// Loads a Hugging Face folder with config.json and one or several safetensors files, with the checks of
  /// load_model().
  /// \param storage  type, engine and device of the weights; the format must be kStored
  /// \throws kConfig when engine, device and format do not fit together
  static TextEncoder load(const std::filesystem::path& folder, int64_t layer, const BaseStorage& storage = {});

  /// Returns the description of the encoder.
  const EncoderSpec& spec() const { return spec_; }

  /// Computes the hidden states of the layer, without autograd. The sequences follow each other in the result. All
  /// matrix products are float32, or float64 if the weights are.
  /// \return [T, D] float32 or float64, on the device of the weights
  /// \throws kData when a sequence is empty or longer than max_tokens, or when an id is outside the vocabulary
  at::Tensor hidden(std::span<const std::vector<int64_t>> sequences) const;

 private:
  struct Affine {
    at::Tensor weight, bias;  ///< [out, in] and [out]; both [D] for a norm
  };
  struct Layer {
    Affine query, key, value, attention_output, attention_norm, intermediate, output, output_norm;
  };

  void take_embeddings(const ModelConfig& config, TensorSource& source);
  Layer take_layer(int64_t index, TensorSource& source) const;
  void leave_the_rest(TensorSource& source) const;
  Affine take_linear(TensorSource& source, const std::string& name, int64_t out, int64_t in) const;
  Affine take_norm(TensorSource& source, const std::string& name) const;
  void check(std::span<const std::vector<int64_t>> sequences) const;
  at::Tensor positions(std::span<const std::vector<int64_t>> sequences) const;
  at::Tensor embedded(const at::Tensor& ids_T, const at::Tensor& positions_T) const;
  at::Tensor hidden_in_order(std::span<const std::vector<int64_t>> sequences) const;
  at::Tensor project(const at::Tensor& x_TI, const Affine& affine) const;
  at::Tensor norm(const at::Tensor& x_TD, const Affine& affine) const;
  at::Tensor attention(const Layer& layer, const at::Tensor& x_TD, std::span<const int64_t> offsets) const;

  EncoderSpec spec_;
  nn::Compute compute_{};
  bool positions_skip_pad_ = false;
  std::string origin_;            // name of the config file, for errors
  std::string prefix_;            // "roberta." or empty
  at::Tensor words_, positions_;  // [V, D], [positions, D]
  at::Tensor type_;               // [D], row of type 0, because texts are never pairs
  Affine embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace evenkeel::models
