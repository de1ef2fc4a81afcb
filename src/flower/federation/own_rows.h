/// \file  Checks that everything that a node sends depends on enough of its own rows.
#pragma once

#include <cstdint>

#include "fed/run/experiment.h"
#include "flower/federation/owner_limits.h"

namespace evenkeel::flower {

/// Checks that each update and each sum of gradients depends on at least OwnerLimits::min_train_rows of the node's own
/// rows, or on all of them if it has fewer. A run can leave few rows by its limit, by a cutoff that drops answers, by
/// keys of data.files or a chat template that leave rows out, by holding rows out, by short rounds, and by a small
/// sample of the method. Passes if the run divides its own rows among clients.
/// \throws kConfig naming the keys
void require_rows(const fed::Experiment& e, int64_t client, const OwnerLimits& limits);

}  // namespace evenkeel::flower
