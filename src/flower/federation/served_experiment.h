/// \file  Builds the experiment of a server whose clients are nodes, and checks before nodes may join what does not
/// depend on them.
#pragma once

#include <cstdint>

#include "fed/run/experiment.h"

namespace evenkeel::flower {

/// Builds the experiment without weights and checks everything that does not depend on nodes and weights.
/// \param evaluate  false: the tasks that this server would score are left out (`--no-evaluation`)
/// \throws kConfig when the method needs the rows of all clients in one place, or rounds are compared by scores that
/// the run does not have; anything that fed::make_experiment() throws
fed::Experiment served_experiment(const fed::RunConfig& config, bool evaluate);

/// Removes tasks on clients' own rows, with a warning, if no client gives scores of test rows.
void leave_out_what_nobody_brings(fed::Server& server);

/// Returns the most bytes of a reply, which are reserved on disk as soon as a node announces them: twice the factors,
/// the matrices whose gradients a method sums at its start, and 1 GiB for scores and what a method sends beside.
int64_t most_upload(const fed::Server& server);

}  // namespace evenkeel::flower
