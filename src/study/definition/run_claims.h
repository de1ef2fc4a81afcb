/// \file  Prevents two processes from executing the same run of a study. Processes that share a study (--shard, --only)
/// each claim the runs that they will execute. The system releases the claims of a process when it ends, even after a
/// crash.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace evenkeel::study {

/// Claims of this process: one locked byte per run in the file `.claims` (fcntl(2), F_OFD_SETLK).
class RunClaims {
 public:
  static constexpr const char* kFile = ".claims";

  /// Claims runs.
  /// \param folder  folder of the study, which must exist
  /// \param runs    indices into StudyState::runs
  /// \param labels  StudyRun::label() of each of `runs`, for errors
  /// \throws kIo naming the first run that another process has claimed
  RunClaims(const std::filesystem::path& folder, std::span<const size_t> runs, std::span<const std::string> labels);
  ~RunClaims();
  RunClaims(const RunClaims&) = delete;
  RunClaims& operator=(const RunClaims&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace evenkeel::study
