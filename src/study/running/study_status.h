/// \file  Formats the states of a study's runs as text.
#pragma once

#include <filesystem>
#include <string>

namespace evenkeel::study {

/// Returns a line with the numbers of done and failed runs, then a line for each run with its state and its seconds,
/// error or rounds. It may be called while processes execute runs. \throws as read_state()
std::string study_status(const std::filesystem::path& folder);

}  // namespace evenkeel::study
