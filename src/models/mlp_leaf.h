/// \file  Implements the dense gated feed-forward block: down(act(gate(x)) * up(x)). Source: Shazeer 2020 (SwiGLU,
/// GEGLU). A class named "Leaf" is a building block of a decoder (models/leaf.h).
/// Dimension names: R rows of a batch, D width of the model, F inner width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>

#include "models/leaf.h"

namespace evenkeel::models {

/// Module names of the three linears relative to the block. Mixtral's are w1, w3 and w2.
struct GatedNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string gate_up{};  ///< one linear for gate and up together, the gate first; empty: two linears
};

/// Describes a dense block.
struct MlpSpec {
  int64_t width = 0;  ///< inner width F
  Activation activation = Activation::kSilu;
  bool bias = false;
  GatedNames names{};
  /// What llama.cpp appends to the names "ffn_gate", "ffn_up" and "ffn_down": "_shexp" for shared experts, empty for
  /// other blocks. Borrowed: the text must live until the block is constructed.
  std::string_view gguf_suffix = "";
};

/// A dense feed-forward block of one layer.
class MlpLeaf {
 public:
  /// Takes the three weights (and biases) from `model`, which shares their storage and records their sites and cost.
  /// \param module  module name, as in "model.layers.3.mlp"
  /// \throws kCheckpoint for a tensor that is missing or of another shape, as ModelBuilder::take_weight()
  MlpLeaf(const MlpSpec& spec, const std::string& module, ModelBuilder& model);
  /// Computes the block. Thread-safe. \return [R, D], before the residual connection
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;

 private:
  Activation activation_;
  FrozenLinear gate_, up_, down_;
  std::optional<FrozenLinear> gate_up_;  // in the place of the first two
};

}  // namespace evenkeel::models
