/// \file  Shows the progress of a run from its folder, also while a process works on it.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::report {

/// Returns a few lines: method, rounds and last loss; why the run ended early; the process that is running, or the
/// command that resumes the run; clients that have replied; the time left; the last line of the log. Changes nothing.
/// \throws kIo when no run was started in the folder and no process has locked it; as records::load_run()
std::string run_status(const std::filesystem::path& folder);

}  // namespace evenkeel::report
