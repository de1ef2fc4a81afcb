/// \file  Determines which linears an adapter_config.json adapts, matched as PEFT 0.21 does. Private to lora/peft*.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/plain/json.h"
#include "lora/peft_pattern.h"

namespace evenkeel::peft {

/// A list of names, each of a whole module or of its end after a dot, or one regular expression for whole names.
class NameList {
 public:
  /// \param value  null, a string or a list of strings. \param place  its place, for errors
  NameList(const OrderedJson& value, const std::string& path);
  bool empty() const { return names_.empty() && !pattern_; }
  bool is_pattern() const { return pattern_.has_value(); }
  bool has(std::string_view module) const;
  bool has_whole(std::string_view module) const { return names_.contains(module); }

 private:
  std::set<std::string, std::less<>> names_;
  std::optional<Regex> pattern_;
};

/// Implements target_modules, exclude_modules, layers_to_transform and layers_pattern. Source:
/// check_target_module_exists of PEFT 0.21.
class ModuleTargets {
 public:
  /// \throws kCheckpoint on values that PEFT refuses too.
  ModuleTargets(const OrderedJson& config, const std::string& file);
  /// Returns false when the file has no target_modules. Then only its tensors show what is adapted.
  bool known() const { return known_; }
  bool has(std::string_view module) const;

 private:
  void read_layers(const OrderedJson& config, const std::string& file);
  bool in_layers(std::string_view module) const;

  bool known_ = false, everything_ = false;
  NameList names_, excluded_;
  std::optional<std::set<int64_t>> layers_{};  // none: all
  std::vector<Regex> layer_patterns_{};        // what comes before a layer's number
};

}  // namespace evenkeel::peft
