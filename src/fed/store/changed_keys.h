/// \file  Finds the keys in which two configs differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// A key whose value differs between two configs.
struct ChangedKey {
  std::string key;
  std::optional<std::string> asked, run;  ///< values as TOML; empty: that config lacks the key
};
/// Lists the keys that differ. output.dir is not compared.
std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run);

}  // namespace evenkeel::fed
