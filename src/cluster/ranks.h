/// \file  Runs a distributed training from start to end, as `evenkeel train` calls it on rank 0 and on the other ranks.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "cluster/process_group.h"
#include "fed/run/training_run.h"

namespace evenkeel::cluster {

/// Starts or resumes the run on rank 0. It must pass `hooks` on to fed::begin_run(): the hooks send the config to the
/// other ranks.
using OpenRun = std::function<fed::Run(const fed::RunHooks& hooks)>;

/// Runs rank 0: opens the run, waits until all ranks report the same inputs, completes the run and dismisses the other
/// ranks.
/// \param stop      as for complete_run()
/// \param conclude  called after the last round with the run and its final scores
/// \throws as complete_run(); kConfig when ranks differ; kIo when a rank is lost, unless cluster.regroup is set
void lead(const Launch& launch, const ClusterOptions& options, const OpenRun& open, const StopRequest& stop,
          const std::function<void(const fed::Run& run, const std::vector<scoring::TaskScore>& scores)>& conclude);

/// Runs any other rank until rank 0 dismisses it. Sets the log level to errors.
/// \param request  must describe the same run as on rank 0
/// \throws kConfig when `request` describes another run, otherwise as lead()
void run_worker(const Launch& launch, const ClusterOptions& options, const fed::RunRequest& request,
                const StopRequest& stop);

}  // namespace evenkeel::cluster
