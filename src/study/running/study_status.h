/// \file  Formats the states of a study's runs as text.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::study {

/// Returns a line with the number of runs by state, then a line for each run with its rounds, seconds or error. It may
/// be called while processes execute runs. \throws as read_state()
std::string study_status(const std::filesystem::path& folder);

}  // namespace evenkeel::study
