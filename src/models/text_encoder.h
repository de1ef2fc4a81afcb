/// \file  Text encoders of the BERT kind (BERT, RoBERTa, XLM-RoBERTa): a vector for each token of a text, for metrics
/// that compare texts. Source: BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019); layout and order of operations of
/// transformers' BertModel and RobertaModel. Dimension names: T tokens, D hidden.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "models/checkpoint.h"

namespace evenkeel {

struct EncoderSpec {
  std::string family;  ///< "bert", "roberta", "xlm-roberta"
  int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_heads = 0;
  int64_t num_layers = 0;  ///< of the checkpoint
  int64_t layer = 0;       ///< whose hidden states come out, 0 .. num_layers; 0: the embeddings
  int64_t max_tokens = 0;  ///< longest sequence its positions reach, special tokens included
  int64_t pad = 0;         ///< token id
  double norm_eps = 1e-12;
};

/// A frozen encoder up to one layer; the layers above are not loaded. Thread-safe.
class TextEncoder {
 public:
  /// Takes from `source` what config.json describes, under names with or without the family's prefix ("roberta.");
  /// heads, pooler and the layers above `layer` are left. \throws kCheckpoint on an unsupported setting or another
  /// family, kConfig when the model has no such layer.
  TextEncoder(const ModelConfig& config, TensorSource& source, int64_t layer);

  /// Loads a Hugging Face folder (config.json, single or sharded safetensors), as strictly as load_model().
  static TextEncoder load(const std::filesystem::path& folder, int64_t layer, BaseDtype dtype = BaseDtype::kCheckpoint);

  const EncoderSpec& spec() const { return spec_; }

  /// Hidden states of the layer, sequences end to end, without a graph. \return [T, D] float32 (float64 when the
  /// weights are). \throws kData on a sequence that is empty or longer than max_tokens, or an id outside the
  /// vocabulary.
  at::Tensor hidden(std::span<const std::vector<int64_t>> sequences) const;

 private:
  struct Affine {
    at::Tensor weight, bias;  ///< [out, in], [out]; of a norm [D], [D]
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
  static at::Tensor project(const at::Tensor& x_TI, const Affine& affine);
  at::Tensor norm(const at::Tensor& x_TD, const Affine& affine) const;
  at::Tensor attention(const Layer& layer, const at::Tensor& x_TD, std::span<const int64_t> offsets) const;

  EncoderSpec spec_;
  bool positions_skip_pad_ = false;
  std::string prefix_;            // "roberta.", or nothing
  at::Tensor words_, positions_;  // [V, D], [positions, D]
  at::Tensor type_;               // [D], the row of type 0: texts are never pairs
  Affine embedding_norm_;
  std::vector<Layer> layers_;
};

}  // namespace evenkeel
