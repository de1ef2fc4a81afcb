/// \file  Regular expressions of an adapter_config.json. PEFT matches them with Python's `re`; here PCRE2 does, on what
/// both read alike. Private to lora/peft*.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace evenkeel::peft {

/// A pattern that matches from the beginning of a name.
class Regex {
 public:
  /// \param text  what the file says. \param before, after  what PEFT puts around it. \param place  for errors
  /// \throws kCheckpoint when it is malformed, too long, or has a construct that Python and PCRE2 read differently
  Regex(const std::string& text, std::string_view before, std::string_view after, const std::string& place);
  /// The text of the group called `name` (all that matched without a name); nothing where there is no match.
  /// \throws kCheckpoint when it takes too many steps to find out.
  std::optional<std::string> match(std::string_view subject, const char* group = nullptr) const;

 private:
  std::string text_, place_;
  std::shared_ptr<void> code_;
};

}  // namespace evenkeel::peft
