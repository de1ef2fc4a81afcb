/// \file  Represents the date that strftime_now of a chat template formats. A run has one fixed date.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace evenkeel::jinja {

/// A date with time, years 1000 to 9999, without a time zone.
class Date {
 public:
  /// Parses "2025-03-01", "2025-03-01T12:30:00" or "2025-03-01 12:30:00". \param name  prefix of the message, e.g. the
  /// config key
  /// \throws kConfig for another form or a day that does not exist.
  static Date read(std::string_view text, std::string_view name);
  /// Returns `text`, or today's local date in the form "2025-03-01" if `text` is kToday.
  static std::string settled(const std::string& text);
  static constexpr std::string_view kToday = "today";

  /// Formats the date as Python's datetime.strftime() in the C locale. \throws kData naming a directive outside
  /// kDirectives.
  std::string formatted(std::string_view format) const;

  /// Characters that may follow %. For numbers, "-" between % and the directive removes the padding.
  static constexpr std::string_view kDirectives = "aAbBhcCdDeFgGHIjklmMnpPrRStTuUVwWxXyY%fzZ";

 private:
  std::tm moment_{};
};

}  // namespace evenkeel::jinja
