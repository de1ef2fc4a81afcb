/// \file  Implements causal self-attention with rotary positions and grouped key heads, including the differences
/// between families. Dimension names: R rows of a batch, N selected rows, D hidden, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "models/leaf.h"
#include "nn/attention/attention.h"

namespace evenkeel::models {

/// Selects the RMSNorm of queries and keys before the rotary embedding.
enum class QkNorm {
  kNone,
  kFullWidth,  ///< over all heads together, weights [H P] and [G P]
  kPerHead,    ///< over each head, weights [P]
};

/// Module names in the checkpoint, relative to the attention module. The site names of adapters do not depend on them.
struct AttentionNames {
  std::string q = "q_proj", k = "k_proj", v = "v_proj", o = "o_proj", q_norm = "q_norm", k_norm = "k_norm";
  std::string qkv{};  ///< one linear for queries, keys and values together; empty: three linears
};

/// Describes an attention block.
struct AttentionSpec {
  int64_t heads = 0, kv_heads = 0, head_width = 0;  ///< H, G and P; H P may differ from D
  int64_t rotary_width = 0;                         ///< the first elements of each head that are rotated; 0: all
  QkNorm qk_norm = QkNorm::kNone;
  bool qkv_bias = false, o_bias = false;
  std::optional<double> clip{};   ///< queries, keys and values are clamped to [-clip, clip]
  std::optional<double> scale{};  ///< factor of the scores; nullopt: 1 / sqrt(P)
  double soft_cap = 0;            ///< soft cap of the scores (nn/attention/attention.h); 0: none
  /// How many tokens a token of each layer attends to, itself included; 0: all up to itself. Empty: 0 in every layer.
  std::vector<int64_t> windows{};
  AttentionNames names{};
};

/// Computes causal attention of a batch, over the cache of `pass` if it has one.
/// \param q  [R, H, P], or [N, H, P] if pass.queries_N is defined \param k, v  [R, G, P] \param steps  applied to q, k
/// and v first
/// \return [R, H P] or [N, H P]
at::Tensor attended(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const nn::AttentionSteps& steps,
                    const LayerPass& pass);

/// An attention block of one layer.
class AttentionLeaf {
 public:
  /// Takes the tensors of the block from `model`.
  /// \param module    module name, as in "model.layers.3.self_attn"
  /// \param norm      kind and epsilon of the QK-norm
  AttentionLeaf(const AttentionSpec& spec, const std::string& module, const NormSpec& norm, ModelBuilder& model);
  /// Computes the block's output.
  /// \return [R, D], or [N, D] if pass.queries_N is defined
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;

 private:
  nn::AttentionSteps steps(const LayerPass& pass) const;
  std::vector<at::Tensor> projected(const at::Tensor& in_RD, const LayerPass& pass) const;

  AttentionSpec spec_;
  NormSpec norm_;
  int64_t window_;  // of this layer
  FrozenLinear q_, k_, v_, o_;
  std::optional<FrozenLinear> qkv_;  // in the place of the first three
  at::Tensor q_norm_, k_norm_;       // undefined: no QK-norm
};

}  // namespace evenkeel::models
