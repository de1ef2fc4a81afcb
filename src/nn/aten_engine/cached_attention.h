/// \file  Implements nn/attention/cached_attention.h with LibTorch's operators, for any device. For one forward pass
/// the cached keys and values of its sequences are concatenated to a *window*, with one operator for all layers. New
/// keys and values are written to the window, and are copied to the cache at the end, with two operators for each
/// tensor that the cache consists of. Dimension names: L layers, B sequences, M cached tokens of all sequences, N new
/// tokens or queries, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/aten_engine/cache_view.h"
#include "nn/aten_engine/rows.h"
#include "nn/attention/kv_cache.h"

namespace evenkeel::nn::aten {

/// Holds the window of one forward pass. Shares the storage of the cache.
class CacheWindow final : public CacheView {
 public:
  /// Concatenates the cached keys and values, which takes the memory of a second copy.
  /// \param cache  after KvCache::extend()
  /// \param offsets  [B + 1], as given to extend() \param last_only  true: attend() may also be called with `only_last`
  CacheWindow(const KvCache& cache, std::span<const int64_t> offsets, bool last_only);

  void put(int64_t layer, const at::Tensor& k_NGP, const at::Tensor& v_NGP) override;
  at::Tensor attend(int64_t layer, const at::Tensor& q_NHP, bool only_last, int64_t window,
                    double soft_cap) const override;
  void write_back() const override;

 private:
  /// The queries of all sequences. The queries of a sequence are for its last tokens.
  struct Queries {
    at::Tensor starts_B1;         // int32
    at::Tensor padded, unpadded;  // indices: N queries -> [B longest] positions, and back
    at::Tensor before_B;          // cached tokens before the first query
    int64_t longest = 0;
  };
  /// The new tokens that are stored in one memory of the cache.
  struct Stored {
    at::Tensor memory;  // [L, 2, G, rows, P]
    at::Tensor from_N;  // positions in the window
    at::Tensor to_N;    // rows of the memory
  };
  at::Tensor padded_attention(const at::Tensor& q_NHP, const at::Tensor& k_MGP, const at::Tensor& v_MGP,
                              const Queries& queries, int64_t window, double soft_cap) const;

  at::Tensor all_;           // [L, 2, G, M, P]
  at::Tensor key_starts_B1;  // int32
  at::Tensor padded_keys_;   // index: M tokens -> [B longest] positions
  at::Tensor new_N;          // positions of the new tokens
  int64_t longest_ = 0, sequences_ = 0;
  Queries every_, last_;
  std::vector<Stored> stored_;
};

}  // namespace evenkeel::nn::aten
