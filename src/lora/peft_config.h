/// \file  What an adapter_config.json says of plain LoRA, read as PEFT 0.17 to 0.21 read it. Private to lora/peft*.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/peft_targets.h"

namespace evenkeel::peft {

/// A key of rank_pattern or alpha_pattern: a regular expression for the end of a module's name, beginning at a dot (or
/// the whole name).
class NamePattern {
 public:
  /// \param place  of the pattern, for errors. \throws kCheckpoint when it is malformed
  NamePattern(std::string text, const std::string& place);
  /// \throws kCheckpoint when it takes too many steps to find out.
  bool matches(std::string_view name) const;

 private:
  std::string text_;
  std::optional<Regex> regex_;  // none where the text means itself
};

/// The first pattern that matches decides.
template <typename T>
using Patterns = std::vector<std::pair<NamePattern, T>>;

struct AdapterConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool square_root = false;  ///< rsLoRA
  Patterns<int64_t> ranks;
  Patterns<double> alphas;
  std::vector<std::string> parameters;  ///< ends of the names of adapted parameters
  ModuleTargets targets;

  /// Of a module, or of a parameter: its module's name, a dot, its own.
  int64_t rank_of(std::string_view name) const;
  /// alpha / r there, or alpha / sqrt(r).
  double scaling_of(std::string_view name) const;
  bool adapts_parameter(std::string_view name) const;
};

/// \throws kCheckpoint on a key or value that is not known to mean plain LoRA.
AdapterConfig read_adapter_config(const std::filesystem::path& file);

}  // namespace evenkeel::peft
