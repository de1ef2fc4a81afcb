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

namespace evenkeel::lora::peft {

/// A list of module names, or one regular expression. A name matches a module name that equals it, or that ends with a
/// dot and the name: "mlp.gate" matches "model.layers.0.mlp.gate". The regular expression must match the whole name.
class NameList {
 public:
  /// Reads the value of a key.
  /// \param value  null, a string or a list of strings
  /// \param origin  the file and key of the value, for error messages
  /// \throws kCheckpoint for a value of another type
  NameList(const OrderedJson& value, const std::string& origin);
  bool empty() const { return names_.empty() && !pattern_; }
  /// Returns true if a name, or the regular expression, matches the module.
  bool has(std::string_view module) const;
  /// Returns true if the whole module name is in the list.
  bool has_whole(std::string_view module) const { return names_.contains(module); }

 private:
  std::set<std::string, std::less<>> names_;
  std::optional<Regex> pattern_;
};

/// Implements target_modules, exclude_modules, layers_to_transform and layers_pattern. Source:
/// check_target_module_exists of PEFT 0.21.
class ModuleTargets {
 public:
  /// Reads the four keys. \throws kCheckpoint on values that PEFT rejects too, and for more than 100 patterns
  ModuleTargets(const OrderedJson& config, const std::string& file);
  /// Returns false when the file has neither target_modules nor target_parameters. Then only the names of its tensors
  /// show which modules are adapted.
  bool known() const { return known_; }
  /// Returns true if the file adapts this module. Only if known().
  bool has(std::string_view module) const;

 private:
  void read_layers(const OrderedJson& config, const std::string& file);
  bool in_layers(std::string_view module) const;

  bool known_ = false, everything_ = false;
  NameList names_, excluded_;
  std::optional<std::set<int64_t>> layers_{};  // unset: all layers
  std::vector<Regex> layer_patterns_{};        // the pattern of the name before the layer number
};

}  // namespace evenkeel::lora::peft
