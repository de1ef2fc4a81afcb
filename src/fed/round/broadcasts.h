/// \file  Caches encoded broadcasts, so that equal payloads for several clients are encoded once.
#pragma once

#include <vector>

#include "lora/payload.h"

namespace evenkeel::fed {

/// Cache of the encoded payloads of a round. It holds at most 64 MiB; a payload that no longer fits is encoded each
/// time. Not thread-safe.
class Broadcasts {
 public:
  /// Returns encode(payload, dtype, sites). The bytes are shared with an earlier result if its payload had the same
  /// tensors, or equal values in tensors of up to 4096 elements. Callers must not write to the bytes.
  lora::EncodedPayload encoded(const lora::Payload& payload, lora::TransportDtype dtype, const lora::Sites& sites);

 private:
  struct Sent {
    lora::Payload payload;  // keeps the tensors alive, so that their addresses are not reused
    lora::TransportDtype dtype;
    lora::EncodedPayload encoded;
  };
  std::vector<Sent> sent_;
  int64_t bytes_ = 0;
};

}  // namespace evenkeel::fed
