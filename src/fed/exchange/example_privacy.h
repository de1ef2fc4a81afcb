/// \file  Declares the interface that makes a client's training private for its single rows (train/private_steps.h).
#pragma once

#include <cstdint>

#include "fed/exchange/message.h"
#include "train/private_steps.h"

namespace evenkeel::fed {

/// A round of training that is to be private.
struct PrivateRound {
  int64_t rows = 0;   ///< N: the client's training rows
  int64_t steps = 0;  ///< optimiser steps of the round
  TensorMap& memory;  ///< what the client keeps between rounds; may gain tensors
};

/// The privacy account of private training, and the source of its keys. Threads: several clients may begin at once.
class ExamplePrivacy {
 public:
  virtual ~ExamplePrivacy() = default;
  /// Charges the account of the client for all steps of a round, and returns the options of these steps. When it
  /// returns, the upload may leave the client.
  /// \throws kConfig when the budget does not allow the round
  virtual train::PrivateSteps begin(const Task& task, const PrivateRound& round) = 0;
};

}  // namespace evenkeel::fed
