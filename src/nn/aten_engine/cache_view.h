/// \file  Declares how a pass of engine aten reads and writes a key/value cache. Dimension names: N new tokens or
/// queries, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace evenkeel::nn::aten {

/// The cache as one forward pass reads and writes it. For each layer call put(), then attend(); after the last layer
/// call write_back(). Threads: one. There are no gradients.
class CacheView {
 public:
  CacheView() = default;
  CacheView(const CacheView&) = delete;
  CacheView& operator=(const CacheView&) = delete;
  virtual ~CacheView() = default;

  /// Writes the keys and values of the new tokens of a layer. \param k_NGP, v_NGP  [N, G, P], sequence after sequence
  virtual void put(int64_t layer, const at::Tensor& k_NGP, const at::Tensor& v_NGP) = 0;
  /// Computes nn::cached_attention(). \param only_last  true: q has the last token of each sequence (REQUIRES
  /// PassInput::last_only); false: all new tokens \param window, soft_cap  as in nn::cached_attention()
  /// \return [N, H P]
  virtual at::Tensor attend(int64_t layer, const at::Tensor& q_NHP, bool only_last, int64_t window,
                            double soft_cap) const = 0;
  /// Writes to the cache what put() has not written there yet.
  virtual void write_back() const {}
};

}  // namespace evenkeel::nn::aten
