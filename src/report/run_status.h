/// \file  Shows the progress of a run from its folder, also while a process works on it.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel {

/// Returns a few lines: method and rounds, the last loss, the process at work or the command that resumes the run, the
/// time left, and the last line of the log. Changes nothing.
/// \throws kIo when the folder holds no run and none is being made
std::string run_status(const std::filesystem::path& folder);

}  // namespace evenkeel
