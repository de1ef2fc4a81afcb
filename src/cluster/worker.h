/// \file  Runs a rank other than 0: executes the commands of rank 0 until it is dismissed.
#pragma once

#include "base/system/interrupt.h"
#include "cluster/command.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

/// Executes commands until kEnd. \param stop  called after every step and while waiting
/// \throws the error of this rank or of another one; Interrupted.
void run_worker(ProcessGroup& member, fed::Experiment& experiment, const StopRequest& stop);

}  // namespace evenkeel::cluster
