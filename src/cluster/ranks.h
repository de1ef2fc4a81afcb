/// \file  A run of several ranks from beginning to end, as `evenkeel train` starts it: what rank 0 and others do.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cluster/process_group.h"
#include "fed/run/training_run.h"

namespace evenkeel::cluster {

/// How rank 0 begins or resumes the run.
using OpenRun = std::function<Run(const RunHooks& hooks)>;

/// Rank 0: opens the run, waits for ranks that are like it, completes it and dismisses them. \param conclude  what is
/// left to do with the run then. \throws as complete_run(); kConfig where ranks differ, kIo where one is lost
void lead(const Launch& launch, const ClusterOptions& options, const OpenRun& open, const StopRequest& stop,
          const std::function<void(const Run& run, const std::vector<TaskScore>& scores)>& conclude);

/// Any other rank. \param request  must ask for the run that rank 0 has
void run_worker(const Launch& launch, const ClusterOptions& options, const RunRequest& request,
                const StopRequest& stop);

}  // namespace evenkeel::cluster
