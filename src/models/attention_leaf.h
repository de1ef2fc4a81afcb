/// \file  Causal self-attention with rotary positions and grouped key heads, as the families differ in it. Dimension
/// names: R rows of a batch, D hidden, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "models/leaf.h"
#include "nn/attention/attention.h"

namespace evenkeel {

/// RMSNorm of queries and of keys before they are turned.
enum class QkNorm {
  kNone,
  kFullWidth,  ///< over all heads together: weights [H P] and [G P]
  kPerHead,    ///< over each head: weights [P]
};

/// Modules of a layer's attention, below its own; sites are named by the usual names whatever these are.
struct AttentionNames {
  std::string q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
};

struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_width = 0;  ///< H, G, P: H P need not be D
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false, o_bias = false;
  std::optional<double> clip{};   ///< queries, keys and values are clamped to [-clip, clip]
  std::optional<double> scale{};  ///< of scores; nothing: one over the root of the head's width
  AttentionNames names{};
};

class AttentionLeaf {
 public:
  /// \param module  "model.layers.3.self_attn"; \param norm_eps  of the QK-norm
  AttentionLeaf(const AttentionSpec& spec, const std::string& module, double norm_eps, ModelBuilder& model);
  /// \param layer  which of the cache's layers is its own. \return [R, D], or [N, D] of the rows that are asked for
  at::Tensor operator()(const at::Tensor& x_RD, size_t layer, const LayerPass& pass) const;

 private:
  AttentionSteps steps(const LayerPass& pass) const;

  AttentionSpec spec_;
  double norm_eps_;
  FrozenLinear q_, k_, v_, o_;
  at::Tensor q_norm_, k_norm_;  // undefined: none
};

}  // namespace evenkeel
