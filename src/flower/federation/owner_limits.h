/// \file  Declares what a node gives at most, whatever a run asks for. Its owner sets these limits when the node
/// starts.
#pragma once

#include <cstdint>

namespace evenkeel::flower {

/// The limits of a node.
struct OwnerLimits {
  /// Smallest number of different test rows that the node scores. With fewer, a score would tell about single rows: the
  /// node then gives none, but trains.
  int64_t min_test_rows = 10;
  /// Smallest number of the node's own rows that an update depends on, or all its rows if it has fewer. Otherwise the
  /// node does not join: an update of a single row tells nearly all of the row.
  int64_t min_train_rows = 2;
  /// Largest number of passes through the model in a round of training: optimiser steps times train.accumulation; a
  /// micro-batch counts once per 256 rows.
  int64_t most_steps = 10'000;
  /// True: the node also sends the scores of single rows if the run's config has evaluate.items.
  bool items = false;
};

}  // namespace evenkeel::flower
