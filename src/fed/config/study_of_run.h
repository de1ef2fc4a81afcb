/// \file  Finds the study that a run folder belongs to. A run of a study is in STUDY/ARM/seed-N.
#pragma once

#include <filesystem>
#include <string_view>

#include "base/plain/folders.h"

namespace evenkeel::fed {

/// Name of the state file of a study (study/definition/study_state.h).
inline constexpr std::string_view kStudyState = "study.json";

/// Returns the folder in which a run of a study has its study: the one two levels above the run folder.
inline std::filesystem::path study_of_run(const std::filesystem::path& folder) { return parent_of(parent_of(folder)); }

/// Returns the default folder of int8 copies of bases: beside a run folder or the folder of a study.
inline std::filesystem::path base_cache_beside(const std::filesystem::path& folder) {
  return parent_of(folder) / ".evenkeel-cache";
}

}  // namespace evenkeel::fed
