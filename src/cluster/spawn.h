/// \file  Starts several ranks on this machine without a launcher, as child processes. When a rank fails, the others
/// are ended, unless the run survives the loss.
#pragma once

#include "cluster/launch.h"

namespace evenkeel::cluster {

/// Forks `ranks` child processes and returns in each of them; the children connect over loopback. It never returns in
/// the calling process. That process forwards SIGINT, SIGTERM and, unless it is ignored, SIGHUP to rank 0, waits for
/// all children, and exits with 0 when the run is done. REQUIRES that no other threads exist.
/// \param survives_loss  true: the others continue after the loss of a rank other than 0
/// \throws kIo when a process cannot be created; in the calling process the error that cause_of() selects
/// (cluster/rank_ends.h), kIo for a rank that was killed by a signal
Launch spawn(int ranks, bool survives_loss);

}  // namespace evenkeel::cluster
