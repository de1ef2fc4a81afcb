/// \file  Lists the keys of a run's config with default, type, allowed values and meaning, from their definitions.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::apps {

/// One key of a config file.
struct ConfigKey {
  /// The key with its tables, as in "train.rounds". "[]" follows a list of tables; "<name>" is a name that the file
  /// chooses.
  std::string key;
  std::string type;     ///< integer, number, boolean, text or list
  std::string value;    ///< the default as TOML; empty: the key has none
  std::string allowed;  ///< allowed values, as an error message names them; empty: all values of the type
  std::string help;
};

/// Returns the keys of all sections in the order of visit(), then those of all methods, then those of `[cluster]`.
std::vector<ConfigKey> config_keys();

/// Returns the keys of a section, as in "train" or "train.schedule", or of a method, as in "ub-smoe".
/// \throws kConfig naming the sections and methods when there is none of that name
std::vector<ConfigKey> config_keys(const std::string& section);

}  // namespace evenkeel::apps
