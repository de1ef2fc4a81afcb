/// \file  Reading an export back with this program's own readers, as it lies on disk.
#pragma once

#include <filesystem>
#include <string>

#include "report/serving.h"

namespace evenkeel {

/// What was exported.
struct WrittenModel {
  std::string base_model;  ///< folder
  const AdapterState& adapters;
  RouterOptions router;  ///< of the run's evaluations; what cannot travel is left out here
};

/// One line: the largest difference of factors (adapters) and of logits on a few random ids between what lies in
/// `folder` and what was to be written.
std::string read_back(const std::filesystem::path& folder, ExportFormat format, const WrittenModel& written);

}  // namespace evenkeel
