/// \file  Computes attention over the places of a cache (nn/attention/kv_cache.h), for passes that add one token to
/// each sequence. Every step runs the same operators at the same addresses, as CUDA graphs require. Flash attention
/// reads the cache in place; without it, attention copies the places of the sequences.
/// Dimension names: B sequences, H query heads, G key/value heads, P head width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "nn/aten_engine/cache_view.h"
#include "nn/attention/kv_cache.h"

namespace evenkeel::nn::aten {

/// The index tensors that differ from step to step, on the device of the cache.
struct PlacesStep {
  at::Tensor starts_B1;      ///< int32: 0, 1, 2 ... B, the first query of each sequence
  at::Tensor key_starts_B1;  ///< int32: the first row of each sequence's place; the last is not read
  at::Tensor lengths_B;      ///< int32: cached tokens of each sequence, including the new one
  at::Tensor rows_B;         ///< int64: the row of each new token
  at::Tensor places_B;       ///< int64: the place of each sequence

  /// \param lengths_B  cached tokens of each sequence, including the new one
  static PlacesStep of(const KvPlaces& places, std::span<const int64_t> lengths_B);
  std::vector<at::Tensor> tensors() const { return {starts_B1, key_starts_B1, lengths_B, rows_B, places_B}; }
  /// Returns a copy with memory of its own.
  PlacesStep copy() const;
};

/// Reads and writes the places of a cache. put() writes the keys and values of new tokens directly to their rows.
class PlacesView final : public CacheView {
 public:
  PlacesView(KvPlaces places, PlacesStep step) : places_(std::move(places)), step_(std::move(step)) {}

  void put(int64_t layer, const at::Tensor& k_BGP, const at::Tensor& v_BGP) override;
  at::Tensor attend(int64_t layer, const at::Tensor& q_BHP, bool only_last, int64_t window,
                    double soft_cap) const override;

 private:
  at::Tensor padded_attention(int64_t layer, const at::Tensor& q_BHP, int64_t window, double soft_cap) const;

  KvPlaces places_;
  PlacesStep step_;
};

}  // namespace evenkeel::nn::aten
