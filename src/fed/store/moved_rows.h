/// \file  Finds the files in rows/ of a run folder (fed/run/run_folder.h) after the folder was moved. Config, manifest
/// and partition hold their paths at the beginning of the run. A file's name contains the hash of its content.
#pragma once

#include <filesystem>
#include <string>

#include "base/plain/json.h"
#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// Returns where an input file of a run is now. If `path` is in a folder rows/ and no longer exists, this is the file
/// of this name in rows/ of `folder`, or else in rows/ of the study's folder two levels above. Returns `path` itself in
/// all other cases.
std::string place_now(const std::filesystem::path& folder, const std::string& path);

/// Replaces every path in a run's config by place_now().
void find_moved_rows(ExperimentConfig& config, const std::filesystem::path& folder);

/// Returns the partition with place_now() applied to the paths in `files` and `client_files`.
Json partition_now(const std::filesystem::path& folder, Json partition);

}  // namespace evenkeel::fed
