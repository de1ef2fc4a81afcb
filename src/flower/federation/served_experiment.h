/// \file  Builds the experiment of a server whose clients are nodes. What does not depend on the nodes is checked
/// before they may join.
#pragma once

#include <cstdint>

#include "fed/run/experiment.h"

namespace evenkeel::flower {

/// Builds the experiment without weights and checks everything that does not depend on nodes and weights.
/// \param evaluate  false: the tasks that this server would score are left out (`--no-evaluation`)
/// \throws kConfig when the method needs the rows of all clients in one place, when privacy is only simulated, or when
/// rounds are compared by scores that the run does not have; anything that fed::make_experiment() throws
fed::Experiment served_experiment(const fed::RunConfig& config, bool evaluate);

/// Removes tasks on clients' own rows, with a warning, if no client gives scores of test rows.
void leave_out_what_nobody_brings(fed::Server& server);

/// Returns the most bytes of a reply, which are reserved on disk as soon as a node announces them: twice the factors,
/// the matrices whose gradients a method sums at its start, and 1 GiB for scores and everything else.
int64_t most_upload(const fed::Server& server);

}  // namespace evenkeel::flower
