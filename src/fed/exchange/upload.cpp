#include "fed/exchange/upload.h"

namespace evenkeel {

PayloadSize size_of(const EncodedPayload& payload) { return {payload.size(), payload.parts}; }

Upload encoded(Upload upload) {
  if (const auto* deferred = std::get_if<DeferredPayload>(&upload)) return deferred->encode();
  return upload;
}

}  // namespace evenkeel
