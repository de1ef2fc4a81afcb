/// \file  Implements multi-head latent attention: keys and values of all heads are linear functions of one narrow
/// (latent) vector per token, and so may be queries. Part of each query and key is rotated by position; that part of
/// the key is common to all heads. Source: DeepSeek-V2 (2024).
/// Dimension names: R rows of a batch, N selected rows, D hidden, H heads, P width of a head in the attention, C width
/// of the narrow vector of keys and values.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <optional>
#include <string>

#include "models/attention_leaf.h"

namespace evenkeel::models {

/// Describes a latent attention block.
struct LatentAttentionSpec {
  int64_t heads = 0;
  int64_t query_rank = 0;  ///< width of the narrow vector of queries; 0: queries are one linear layer of the input
  int64_t kv_rank = 0;     ///< C
  int64_t plain_width = 0, rotary_width = 0, value_width = 0;  ///< of a head: parts of queries and keys, and its values
  bool bias = false;           ///< the linear layers to narrow vectors, and to the output, have a bias
  bool adjacent_pairs = true;  ///< elements 2 i and 2 i + 1 are rotated together; false: i and i + half the width
  double scale_factor = 1;     ///< factor of the scores besides 1 / sqrt(plain_width + rotary_width)
  NormSpec norm{.eps = 1e-6};  ///< norm of narrow vectors

  /// Returns P. Queries, keys and values are padded with zeros to the widest of them.
  int64_t head_width() const { return std::max(plain_width + rotary_width, value_width); }
};

/// A latent attention block of one layer. The cache holds keys and values of all heads, not the narrow vectors.
class LatentAttentionLeaf {
 public:
  /// Takes the tensors of the block from `model`. \param module  module name, as in "model.layers.3.self_attn"
  LatentAttentionLeaf(const LatentAttentionSpec& spec, const std::string& module, ModelBuilder& model);
  /// Computes the block's output. The rotary table of `pass` has the width of the rotated part.
  /// \return [R, D], or [N, D] if pass.queries_N is defined
  at::Tensor operator()(const at::Tensor& x_RD, const LayerPass& pass) const;

 private:
  void take_queries(const std::string& module, ModelBuilder& model);
  at::Tensor queries(const at::Tensor& x_RD, const LayerPass& pass) const;
  at::Tensor rotated(const at::Tensor& x_RHP, const nn::RotaryTable& table, const LayerPass& pass) const;

  LatentAttentionSpec spec_;
  std::optional<FrozenLinear> q_, q_narrow_, q_wide_;
  std::optional<Norm> q_norm_;
  FrozenLinear kv_narrow_, kv_wide_, o_;
  Norm kv_norm_;
};

}  // namespace evenkeel::models
