#include "nn/aten_engine/view_of_cache.h"

#include "nn/aten_engine/cache_places.h"
#include "nn/aten_engine/cached_attention.h"

namespace evenkeel::nn::aten {

std::unique_ptr<CacheView> view_of(const KvCache& cache, std::span<const int64_t> offsets, bool last_only) {
  const bool single_tokens = offsets.back() == std::ssize(offsets) - 1 && std::ssize(cache.sequences) == offsets.back();
  if (const auto places = single_tokens ? cache.places() : std::nullopt)
    return std::make_unique<PlacesView>(*places, PlacesStep::of(*places, cache.lengths()));
  return std::make_unique<CacheWindow>(cache, offsets, last_only);
}

}  // namespace evenkeel::nn::aten
