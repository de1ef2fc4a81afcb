#include "jinja/date.h"

#include <array>
#include <chrono>

#include "base/plain/error.h"
#include "base/plain/text.h"

namespace evenkeel::jinja {
namespace {

/// Returns true if `text` has a digit where `form` has a 0, and the same characters elsewhere.
bool has_form(std::string_view text, std::string_view form) {
  if (text.size() != form.size()) return false;
  for (size_t i = 0; i < form.size(); ++i)
    if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return false;
  return true;
}

int number_at(std::string_view text, size_t at, size_t digits) {
  return parse_number<int>(text.substr(at, digits)).value_or(0);
}

std::string written(const std::tm& date, const char* directive) {
  std::array<char, 64> out{};
  return {out.data(), std::strftime(out.data(), out.size(), directive, &date)};
}

/// Formats one directive. Dates have no time zone and no microseconds.
std::string directive_text(const std::tm& date, char letter, bool unpadded) {
  if (letter == 'z' || letter == 'Z') return "";
  if (letter == 'f') return "000000";
  const std::array<char, 4> padded = {'%', letter, '\0', '\0'}, bare = {'%', '-', letter, '\0'};
  return written(date, unpadded ? bare.data() : padded.data());
}

/// Checks a directive of strftime_now, a letter or nothing. \throws kData if it is not supported
void check_directive(std::string_view directive, bool unpadded) {
  constexpr std::string_view kNumbers = "CdegGHIjklmMSuUVwWyY";
  EK_CHECK(!directive.empty() && (unpadded ? kNumbers : Date::kDirectives).find(directive) != std::string_view::npos,
           kData, "strftime_now: the directive %", unpadded ? "-" : "", directive,
           " is not part of the subset: ", Date::kDirectives);
}

}  // namespace

Date Date::read(std::string_view text, std::string_view name) {
  const bool with_time = has_form(text, "0000-00-00T00:00:00") || has_form(text, "0000-00-00 00:00:00");
  EK_CHECK(with_time || has_form(text, "0000-00-00"), kConfig, name, " is \"", text,
           "\", expected YYYY-MM-DD, YYYY-MM-DDThh:mm:ss or today");
  namespace cal = std::chrono;
  const int year = number_at(text, 0, 4), month = number_at(text, 5, 2), day = number_at(text, 8, 2);
  const cal::year_month_day date(cal::year(year), cal::month(static_cast<unsigned>(month)),
                                 cal::day(static_cast<unsigned>(day)));
  const int hour = with_time ? number_at(text, 11, 2) : 0, minute = with_time ? number_at(text, 14, 2) : 0,
            second = with_time ? number_at(text, 17, 2) : 0;
  EK_CHECK(date.ok() && year >= 1000 && hour < 24 && minute < 60 && second < 60, kConfig, name, " is \"", text,
           "\", which is no moment of the years 1000 to 9999");
  const auto days = cal::sys_days(date);
  Date out;
  out.moment_.tm_year = year - 1900;
  out.moment_.tm_mon = month - 1;
  out.moment_.tm_mday = day;
  out.moment_.tm_hour = hour;
  out.moment_.tm_min = minute;
  out.moment_.tm_sec = second;
  out.moment_.tm_wday = static_cast<int>(cal::weekday(days).c_encoding());
  out.moment_.tm_yday = static_cast<int>((days - cal::sys_days(cal::year(year) / 1 / 1)).count());
  return out;
}

std::string Date::settled(const std::string& text) {
  if (text != kToday) return text;
  const auto now = std::time(nullptr);
  std::tm local{};
  EK_CHECK(::localtime_r(&now, &local), kInternal, "the clock has no date");
  return written(local, "%Y-%m-%d");
}

std::string Date::formatted(std::string_view format) const {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%') {
      out += format[at];
      continue;
    }
    const bool unpadded = at + 1 < format.size() && format[at + 1] == '-';
    at += unpadded ? 2 : 1;
    check_directive(at < format.size() ? format.substr(at, 1) : "", unpadded);
    out += directive_text(moment_, format[at], unpadded);
  }
  return out;
}

}  // namespace evenkeel::jinja
