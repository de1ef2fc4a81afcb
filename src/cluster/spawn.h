/// \file  Starts several ranks on this machine without a launcher, as child processes. When one fails, the others are
/// ended.
#pragma once

#include "cluster/launch.h"

namespace evenkeel::cluster {

/// Forks `ranks` child processes and returns in each of them; the children connect over loopback. It never returns in
/// the calling process. That process forwards SIGINT and SIGTERM to rank 0 and waits for all children. It exits with
/// the code of rank 0, or with that of the first other rank that failed, 1 for a killed one. REQUIRES that no other
/// threads exist.
/// \param others_go_on  true: the others continue after the loss of a rank other than 0
/// \throws kIo when a process cannot be created, and in the calling process when rank 0 was killed by a signal
Launch spawn(int ranks, bool others_go_on);

}  // namespace evenkeel::cluster
