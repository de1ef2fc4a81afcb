/// \file  Implements the dense gated feed-forward block: down(act(gate(x)) * up(x)). Source: Shazeer 2020 (SwiGLU,
/// GEGLU).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "models/leaf.h"

namespace evenkeel::models {

/// Module names of the three linears relative to the block. Mixtral's are w1, w3 and w2.
struct GatedNames {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// Describes a dense block.
struct MlpSpec {
  int64_t width = 0;  ///< inner width F
  Activation activation = Activation::kSilu;
  bool bias = false;
  GatedNames names{};
  std::string_view gguf_suffix = "";  ///< suffix of llama.cpp's names "ffn_gate", "ffn_up" and "ffn_down"
};

/// A dense feed-forward block of one layer.
class MlpLeaf {
 public:
  /// Takes the tensors of the block from `model`.
  /// \param module  module name, as in "model.layers.3.mlp"
  MlpLeaf(const MlpSpec& spec, const std::string& module, ModelBuilder& model);
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;

 private:
  Activation activation_;
  FrozenLinear gate_, up_, down_;
};

}  // namespace evenkeel::models
