/// \file  Finds the keys in which two configs differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fed/config/run_config.h"

namespace evenkeel::fed {

/// A key whose value differs between a requested config and another config, usually a run's.
struct ChangedKey {
  std::string key;
  std::optional<std::string> asked, run;  ///< values in the two configs as TOML; nullopt: that config lacks the key
};
/// Lists the keys that differ: method.name first, because messages may name only the first keys; then the other keys of
/// `asked`, and last the keys that only `run` has, both in alphabetical order. output.dir is not compared.
std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run);

}  // namespace evenkeel::fed
