/// \file  The keys in which two configs differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// A key with another value in two configs. Empty: one of them lacks the key.
struct ChangedKey {
  std::string key;
  std::optional<std::string> asked, run;  ///< values as TOML
};
/// Lists the keys that differ. output.dir is not compared.
std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run);

}  // namespace evenkeel::fed
