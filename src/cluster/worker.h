/// \file  What every rank but the first does: rank 0's commands, one after the other, until it is dismissed.
#pragma once

#include "base/system/interrupt.h"
#include "cluster/command.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

/// Until rank 0 says that all is done. \param stop  asked after every step and while waiting
/// \throws what went wrong here, or with the others; Interrupted
void run_worker(ProcessGroup& member, Experiment& experiment, const StopRequest& stop);

}  // namespace evenkeel::cluster
