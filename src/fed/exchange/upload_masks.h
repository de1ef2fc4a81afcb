/// \file  Hides the summand of a client that has keys of its own ([secure_aggregation]). Nodes implement it. Without
/// one, masks are simulated (fed/exchange/simulated_masks.h).
#pragma once

#include "crypto/secret.h"
#include "fed/exchange/message.h"
#include "secure/masks.h"

namespace evenkeel::fed {

/// The masks of one client. Threads: one.
class UploadMasks {
 public:
  virtual ~UploadMasks() = default;
  /// Returns the key by which the client rounds to 16 bits in the task's round.
  virtual crypto::Secret rounding_key(const Task& task) = 0;
  /// Adds the client's masks to its summand. \throws kData when the summand may not be masked
  virtual void add(const Task& task, const secure::RingVector& summand) = 0;
};

}  // namespace evenkeel::fed
