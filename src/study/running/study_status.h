/// \file  What became of a study's runs, as lines for people.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::study {

/// Returns the number of runs by state, then a line for each: its rounds, seconds or error. Works while processes make
/// runs. \throws as read_state()
std::string study_status(const std::filesystem::path& folder);

}  // namespace evenkeel::study
