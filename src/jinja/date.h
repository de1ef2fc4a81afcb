/// \file  The moment that strftime_now of a chat template writes. A run has one, which never changes.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace evenkeel::jinja {

/// A moment of the years 1000 to 9999, without a time zone.
class Date {
 public:
  /// "2025-03-01", or with a time: "2025-03-01T12:30:00". `name` begins the message.
  /// \throws kConfig for anything else, and for a day that no calendar has
  static Date read(std::string_view text, std::string_view name);
  /// `text`, or this machine's day, "2025-03-01", in the place of kToday.
  static std::string settled(const std::string& text);
  static constexpr std::string_view kToday = "today";

  /// datetime.strftime() of Python in the C locale. \throws kData naming a directive outside kDirectives
  std::string formatted(std::string_view format) const;

  /// What may follow %; those of numbers with a - between them, which leaves the padding out.
  static constexpr std::string_view kDirectives = "aAbBhcCdDeFgGHIjklmMnpPrRStTuUVwWxXyY%fzZ";

 private:
  std::tm moment_{};
};

}  // namespace evenkeel::jinja
