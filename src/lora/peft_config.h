/// \file  Reads the adapter_config.json of plain LoRA as PEFT 0.17 to 0.21 do. Private to lora/peft*.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/peft_targets.h"

namespace evenkeel::lora::peft {

/// A key of rank_pattern or alpha_pattern: a regular expression that matches a whole module name, or the end of one
/// after a dot.
class NamePattern {
 public:
  /// \param origin  the file and key of the pattern, for error messages. \throws kCheckpoint when it is malformed
  NamePattern(std::string text, const std::string& origin);
  /// Returns true when the pattern matches `name`. \throws kCheckpoint when matching takes too many steps.
  bool matches(std::string_view name) const;

 private:
  std::string text_;
  std::optional<Regex> regex_;  // unset for a literal text
};

/// Values by pattern. The value of the first pattern that matches counts.
template <typename T>
using Patterns = std::vector<std::pair<NamePattern, T>>;

/// The content of an adapter_config.json.
struct AdapterConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool square_root = false;  ///< rsLoRA
  Patterns<int64_t> ranks;
  Patterns<double> alphas;
  std::vector<std::string> parameters;  ///< ends of the names of adapted parameters
  ModuleTargets targets;

  /// Returns the rank of a module or parameter. The name of a parameter is its module's name, a dot, and its own name.
  int64_t rank_of(std::string_view name) const;
  /// Returns alpha / r, or alpha / sqrt(r) with rsLoRA.
  double scaling_of(std::string_view name) const;
  /// Returns true if the file names this parameter among its target_parameters.
  bool adapts_parameter(std::string_view name) const;
};

/// Reads a file. \throws kCheckpoint on a key or value that may not mean plain LoRA.
AdapterConfig read_adapter_config(const std::filesystem::path& file);

}  // namespace evenkeel::lora::peft
