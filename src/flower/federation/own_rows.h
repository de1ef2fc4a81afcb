/// \file  Checks how many of its own rows what a node sends would be of.
#pragma once

#include <cstdint>

#include "fed/run/experiment.h"
#include "flower/federation/owner_limits.h"

namespace evenkeel::flower {

/// Checks that no update and no sum of gradients is of fewer of the node's own rows than OwnerLimits::min_train_rows,
/// or than all of them. A config can leave few rows by its limit, by a cutoff that drops answers, by short rounds, and
/// by a small sample of the method.
/// \throws kConfig naming the keys
void require_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits);

}  // namespace evenkeel::flower
