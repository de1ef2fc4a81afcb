/// \file  Runs a rank other than 0: executes the commands of rank 0 until it is dismissed.
#pragma once

#include "base/system/interrupt.h"
#include "cluster/command.h"
#include "cluster/scratch.h"
#include "fed/run/experiment.h"

namespace evenkeel::cluster {

/// Executes commands until kEnd. If another rank is lost and `cluster.regroup` is set, it joins the new group and
/// continues.
/// \param experiment  built from rank 0's config (cluster/identity.h); its fabric trains the clients that are assigned
/// to this rank
/// \param scratch     keeps the uploads of this rank's clients
/// \param stop        called after every step and while waiting
/// \throws the error of this rank; kIo when another rank failed; Interrupted when `stop` returns true or another rank
/// is interrupted
void run_worker(ProcessGroup& member, fed::Experiment& experiment, const Scratch& scratch, const StopRequest& stop);

}  // namespace evenkeel::cluster
