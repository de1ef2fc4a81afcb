/// \file  Prevents two processes from executing the same run of a study. Processes that share a study (--shard, --only)
/// each claim the runs that they will execute. The claims of a process end with it (base/plain/file_lock.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/plain/file_lock.h"

namespace evenkeel::study {

/// Claims of this process: a locked file `.claims-<number>` in the folder of the study, which lists the runs. The
/// folder is locked while a process compares its runs with those files (lock_state()).
class RunClaims {
 public:
  /// Claims runs.
  /// \param folder  folder of the study, which must exist
  /// \param runs    indices into StudyState::runs
  /// \param labels  StudyRun::label() of each of `runs`, for errors
  /// \throws kIo naming the first run that another process has claimed; as lock_state()
  RunClaims(const std::filesystem::path& folder, std::span<const size_t> runs, std::span<const std::string> labels);

  /// Returns true if `entry` is a file of claims, or a temporary file of one that a killed process left.
  static bool is_claim(const std::filesystem::path& entry);

 private:
  std::optional<FileLock> lock_;
};

}  // namespace evenkeel::study
