/// \file  nn/attention/cached_attention.h by LibTorch's operators, on any device. For one forward pass all that is
/// cached of its sequences is laid end to end, layer by layer; new keys and values go there, and back into the cache at
/// its end. Dimension names: L layers, B sequences, M cached tokens of all of them, N new ones or queries, H query
/// heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/attention/kv_cache.h"
#include "nn/dense/aten_rows.h"

namespace evenkeel::aten {

class CacheWindow {
 public:
  /// \param cache  after KvCache::extend(), which appended to each sequence what `offsets` [B + 1] say
  /// \param last_only  queries are each sequence's last token alone. Memory: what is cached, once more
  CacheWindow(const KvCache& cache, std::span<const int64_t> offsets, bool last_only);

  /// The new tokens' keys and values. \param k, v  [N, G, P], sequence after sequence
  void put(int64_t layer, const at::Tensor& k_NGP, const at::Tensor& v_NGP);
  /// As evenkeel::cached_attention(). \param only_last  whether q are the last tokens alone, as the constructor was
  /// told, or all new ones. \return [N, H P]
  at::Tensor attend(int64_t layer, const at::Tensor& q_NHP, bool only_last) const;
  /// Writes what was put into the cache.
  void keep() const;

 private:
  /// Of each sequence the queries, consecutive, its last ones.
  struct Queries {
    at::Tensor starts_B1;         // int32
    at::Tensor padded, unpadded;  // [B longest] from N, N from [B longest]
    at::Tensor before_B;          // cached tokens before the first query
    int64_t longest = 0;
  };
  struct Piece {
    KvRun run;
    int64_t at = 0;  // in the window
  };
  at::Tensor padded_attention(const at::Tensor& q_NHP, const at::Tensor& k_MGP, const at::Tensor& v_MGP,
                              const Queries& queries) const;

  at::Tensor all_;           // [L, 2, G, M, P]
  at::Tensor key_starts_B1;  // int32
  at::Tensor padded_keys_;   // [B longest] from M
  at::Tensor new_N;          // places of the new tokens
  int64_t longest_ = 0, sequences_ = 0;
  Queries every_, last_;
  std::vector<Piece> added_;
};

}  // namespace evenkeel::aten
