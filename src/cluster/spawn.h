/// \file  Several ranks on this machine, without a launcher: processes of this one, which ends them all when one fails.
#pragma once

#include "cluster/launch.h"

namespace evenkeel::cluster {

/// Returns in each of `ranks` new processes, which find each other over loopback. This one never returns: it hands on
/// signals to rank 0, waits for all, and ends with rank 0's exit code or that of the first that failed. REQUIRES that
/// no threads run yet. \param others_go_on  whether the loss of a rank but the first is theirs to deal with
Launch spawn(int ranks, bool others_go_on);

}  // namespace evenkeel::cluster
