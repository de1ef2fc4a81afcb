/// \file  Chooses how a pass reads and writes a cache.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "nn/aten_engine/cache_view.h"
#include "nn/attention/kv_cache.h"

namespace evenkeel::nn::aten {

/// Returns a PlacesView (nn/aten_engine/cache_places.h) if each sequence has a place and gets one token, else a
/// CacheWindow (nn/aten_engine/cached_attention.h).
/// \param cache  after KvCache::extend() \param offsets  [B + 1], as given to extend()
/// \param last_only  PassInput::last_only
std::unique_ptr<CacheView> view_of(const KvCache& cache, std::span<const int64_t> offsets, bool last_only);

}  // namespace evenkeel::nn::aten
