/// \file  Matches the regular expressions of an adapter_config.json. PEFT uses Python's `re`. This file uses PCRE2 and
/// accepts only constructs that have the same meaning in both. Private to lora/peft*.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel::lora::peft {

/// A pattern that must match from the beginning of a name.
class Regex {
 public:
  /// \param text  the pattern of the file
  /// \param before, after  text that PEFT adds around the pattern
  /// \param origin  the file and key of the pattern, for error messages
  /// \throws kCheckpoint when the pattern is malformed, too long, or has a construct that Python and PCRE2 read
  /// differently.
  Regex(const std::string& text, std::string_view before, std::string_view after, const std::string& origin);
  /// Returns the text of the group named `group`, or of the whole match if `group` is null; nullopt when there is no
  /// match. \throws kCheckpoint when matching takes too many steps.
  std::optional<std::string> match(std::string_view subject, const char* group = nullptr) const;

 private:
  std::string text_, origin_;
  std::shared_ptr<void> code_;
};

}  // namespace evenkeel::lora::peft
