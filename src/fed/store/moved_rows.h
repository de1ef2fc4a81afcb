/// \file  Finds the files in rows/ of a run folder (fed/run/run_folder.h) after the folder was moved. Config, manifest
/// and partition name them where they were when the run began; their names have the hash of their content.
#pragma once

#include <filesystem>
#include <string>

#include "base/plain/json.h"
#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// Returns where an input file of a run is now: the file of this name in rows/ of `folder`, or of the folder of the
/// study that the run is in, if the recorded path was in a folder rows/ and is not there any more. Otherwise returns
/// the path as it is.
std::string place_now(const std::filesystem::path& folder, const std::string& path);

/// Replaces the paths of these files in a run's config by place_now().
void find_moved_rows(ExperimentConfig& config, const std::filesystem::path& folder);

/// Returns the partition with the paths of its `files` and `client_files` as they are now.
Json partition_now(const std::filesystem::path& folder, Json partition);

}  // namespace evenkeel::fed
