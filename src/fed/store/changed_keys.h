/// \file  Finds the keys in which two configs differ.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// A key whose value differs between a requested config and another one, mostly that of a run.
struct ChangedKey {
  std::string key;
  std::optional<std::string> asked, run;  ///< values in the two configs as TOML; empty: that config lacks the key
};
/// Returns the TOML value of every key of a config, by full key, in the order of the text.
/// \param text  ExperimentConfig::text(), which has only "[section]", "[[list]]" (the first is "list[0]") and "key =
/// value" lines
std::vector<std::pair<std::string, std::string>> config_values(const std::string& text);
/// Lists the keys that differ, those of `asked` first. output.dir is not compared.
std::vector<ChangedKey> changed_keys(const ExperimentConfig& asked, const ExperimentConfig& run);

}  // namespace evenkeel::fed
