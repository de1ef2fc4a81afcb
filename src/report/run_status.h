/// \file  How far a run is, from its folder, also while a process works on it.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel {

/// A few lines: method and rounds, the last loss, who works on it or the command that goes on with it, the time left,
/// the last line of its log. Changes nothing. \throws kIo when there is no run and none is being made
std::string run_status(const std::filesystem::path& folder);

}  // namespace evenkeel
