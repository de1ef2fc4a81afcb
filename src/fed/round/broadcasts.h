/// \file  What a server sends to several clients alike is encoded once.
#pragma once

#include <vector>

#include "lora/payload.h"

namespace evenkeel {

/// The payloads of a round as they were encoded. Of at most 64 MiB together: what is larger is encoded each time, which
/// beside training on it is little.
class Broadcasts {
 public:
  /// As encode(); the same bytes again where an earlier payload held the very same tensors, and small ones of the same
  /// values. Nobody may write to them.
  EncodedPayload encoded(const Payload& payload, TransportDtype dtype, const Sites& sites);

 private:
  struct Sent {
    Payload payload;  // holds its tensors, so that no other can lie where they do
    TransportDtype dtype;
    EncodedPayload encoded;
  };
  std::vector<Sent> sent_;
  int64_t bytes_ = 0;
};

}  // namespace evenkeel
