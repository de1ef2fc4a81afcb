/// \file  Declares the interface that hides a client's summand by keys that the client holds ([secure_aggregation]).
/// Nodes implement it. Without an implementation, masks are simulated (fed/exchange/simulated_masks.h).
#pragma once

#include <memory>

#include "base/format/safetensors.h"
#include "crypto/secret.h"
#include "fed/exchange/message.h"
#include "secure/masks.h"
#include "train/local_training.h"

namespace evenkeel::fed {

/// What a client trained in a round, before it is hidden.
struct TrainedRound {
  train::LocalResult result;
  TensorMap memory;  ///< the client's memory after the round
};

/// The masks of one client. Threads: one.
class UploadMasks {
 public:
  virtual ~UploadMasks() = default;
  /// Returns the key of the client's stochastic rounding to 16 bits in the task's round.
  virtual crypto::Secret rounding_key(const Task& task) = 0;
  /// Returns the result that keep() stored for the same task, even under other masks; null if there is none.
  virtual std::shared_ptr<const TrainedRound> kept(const Task& task) const = 0;
  /// Stores the result of a task until its round is committed: a round that is begun again needs new masks, but no new
  /// training.
  virtual void keep(const Task& task, std::shared_ptr<const TrainedRound> trained) = 0;
  /// Adds the client's masks to its summand, in place. \throws kData when the summand must not be masked
  virtual void add(const Task& task, const secure::RingVector& summand) = 0;
};

}  // namespace evenkeel::fed
