/// \file  Rotary embedding and causal attention over packed sequences, with an optional key/value cache for generation.
/// Dimension names: T tokens, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace evenkeel {

/// cos and sin of RoPE for `positions`: each [T, P], float32. Source: Su et al. 2021, the half-split layout of
/// GPT-NeoX.
struct RotaryTable {
  at::Tensor cos, sin;
};
RotaryTable rotary_table(const at::Tensor& positions_T, int64_t head_width, double theta);

/// \param x [T, H, P] -> [T, H, P]
at::Tensor apply_rotary(const at::Tensor& x_THP, const RotaryTable& table);

/// Keys and values of one layer, per sequence. Sequences may have different lengths.
struct LayerCache {
  std::vector<at::Tensor> keys, values;  ///< [B] x [capacity, G, P]; the first `lengths[b]` rows are filled
};
struct KvCache {
  std::vector<LayerCache> layers;
  std::vector<int64_t> lengths;  ///< [B] tokens cached so far
  /// Room for `capacity[b]` tokens per sequence, `num_layers` layers. Memory: sum(capacity) * layers * 2 * G * P * 4
  /// bytes.
  static KvCache make(int64_t num_layers, std::span<const int64_t> capacity, int64_t kv_heads, int64_t head_width);
  /// Keeps sequence sources[i] as sequence i (beam search); copies where a source is used twice.
  void select(std::span<const int64_t> sources);
};

/// Where each of B packed sequences begins, and where the last ends. \param offsets [B + 1]. \throws kShape unless they
/// rise to `tokens` (nothing is empty).
void check_offsets(std::span<const int64_t> offsets, int64_t tokens);

/// Causal attention within each sequence; query heads share key/value heads in groups of H / G. Scale 1/sqrt(P).
/// \param q [T, H, P], k, v [T, G, P]; offsets B + 1.
/// \param cache  null, or the layer's cache: the new keys and values are appended behind `lengths` and attended
///               to as well (no gradients then). The caller advances `lengths` after the last layer.
/// \return [T, H * P]
at::Tensor packed_attention(const at::Tensor& q_THP, const at::Tensor& k_TGP, const at::Tensor& v_TGP,
                            std::span<const int64_t> offsets, LayerCache* cache = nullptr,
                            std::span<const int64_t> lengths = {});

}  // namespace evenkeel
