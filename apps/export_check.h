/// \file  Reads an export back from disk with this program's own readers and compares it with the model that was
/// written.
#pragma once

#include <filesystem>
#include <string>

#include "report/serving.h"

namespace evenkeel::apps {

/// The model that was exported. Borrows the adapters.
struct WrittenModel {
  std::string base_model;  ///< folder of the base model
  /// The factors as written.
  const lora::AdapterState& adapters;
  /// Router options of the run's evaluations; those that an export cannot represent are ignored.
  nn::RouterOptions router;
};

/// Compares an export with the model. A GGUF file is not read.
/// \return one line with the largest difference of factors (adapters) and of logits on a few random token ids
/// \throws as load_model() and load_peft_adapter()
std::string read_back(const std::filesystem::path& folder, report::ExportFormat format, const WrittenModel& written);

}  // namespace evenkeel::apps
