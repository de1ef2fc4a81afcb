/// \file  Lists the keys of a run's config with default, type, allowed values and meaning, from their definitions.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::apps {

/// One key of a config file.
struct ConfigKey {
  /// With its tables, as in "train.lr"; "[]" stands behind a list of tables, "<name>" for a name that the file chooses.
  std::string key;
  std::string type;     ///< integer, number, boolean, text or list
  std::string value;    ///< the default as TOML; empty: the key has none
  std::string allowed;  ///< as the error about another value names it; empty: the type alone bounds it
  std::string help;
};

/// Returns the keys of all sections and methods, in the order in which `--print-config` writes them.
std::vector<ConfigKey> config_keys();

/// Returns those of a section, as in "train" or "train.schedule", or of a method, as in "ub-smoe".
/// \throws kConfig naming the sections and methods when there is none of that name
std::vector<ConfigKey> config_keys(const std::string& section);

}  // namespace evenkeel::apps
