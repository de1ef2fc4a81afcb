/// \file  Where tests of this room find files that are no part of the project.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace evenkeel::testing {

/// The folder that $EVENKEEL_DATA names; without it one that is not there, so that tests skip and say so.
inline std::filesystem::path data_folder() {
  const char* given = std::getenv("EVENKEEL_DATA");
  return given ? given : "$EVENKEEL_DATA";
}

}  // namespace evenkeel::testing
