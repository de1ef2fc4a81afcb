#include "fed/exchange/upload.h"

namespace evenkeel::fed {

PayloadSize size_of(const lora::EncodedPayload& payload) { return {payload.size(), payload.parts}; }

Upload encoded(Upload upload) {
  if (const auto* deferred = std::get_if<lora::DeferredPayload>(&upload)) return deferred->encode();
  return upload;
}

}  // namespace evenkeel::fed
