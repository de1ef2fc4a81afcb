// Prints values as Python's str() and repr() do.
#include <charconv>
#include <cmath>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/budget.h"
#include "jinja/text_functions.h"
#include "jinja/value.h"

namespace evenkeel::jinja {
namespace {

/// Returns Python's repr() of a float: the shortest digits that read back; exponents from 1e16 and below 1e-4.
std::string float_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  char digits[64];
  const auto form = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(digits, std::to_chars(digits, digits + sizeof digits, value, form).ptr);
  return fixed && text.find('.') == std::string::npos ? text + ".0" : text;
}

constexpr std::string_view kHex = "0123456789abcdef";

/// Returns the escape of a character: \\xe9, \\u2028 or \\U000e0001.
std::string escaped_point(uint32_t point) {
  const int digits = point < 0x100 ? 2 : point < 0x10000 ? 4 : 8;
  std::string out = digits == 2 ? "\\x" : digits == 4 ? "\\u" : "\\U";
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += kHex[point >> shift & 15];
  return out;
}

std::string quoted_character(std::string_view one, char quote) {
  constexpr std::string_view kNamed = "\n\r\t\\", kLetters = "nrt\\";
  const auto at = kNamed.find(one.front());
  if (at != kNamed.npos || one.front() == quote) return {'\\', at != kNamed.npos ? kLetters[at] : quote};
  const auto point = unicode::decode(one.data()).value;
  return is_printable(point) ? std::string(one) : escaped_point(point);
}

/// Returns Python's repr() of a string.
std::string quoted(const std::string& text) {
  const bool single = text.find('\'') != std::string::npos && text.find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for (const auto one : characters(text)) out += quoted_character(one, quote);
  return out + quote;
}

std::string list_text(const List& list, Budget& budget) {
  std::string out;
  budget.charge(list.items.size());
  for (size_t i = 0; i < list.items.size(); ++i) out += (i == 0 ? "" : ", ") + representation(list.items[i], budget);
  if (list.type == SequenceType::kList) return "[" + out + "]";
  return "(" + out + (list.items.size() == 1 ? ",)" : ")");
}

std::string dict_text(const Dict& dict, Budget& budget) {
  std::string out;
  budget.charge(dict.entries.size());
  for (const auto& [key, value] : dict.entries)
    out += (out.empty() ? "" : ", ") + representation(key, budget) + ": " + representation(value, budget);
  return "{" + out + "}";
}

}  // namespace

std::string representation(const Value& value, Budget& budget) {
  if (value.is<Undefined>()) return "Undefined";
  EK_CHECK(!value.is<SafeText>(), kData, "a list or dict that holds what | safe gave is not part of the subset");
  if (!value.is_string()) return printed(value, budget);
  budget.charge_bytes(value.text().size());
  return quoted(value.text());
}

std::string printed(const Value& value, Budget& budget) {
  if (const auto* safe = value.as<SafeText>()) return *safe->text;
  if (value.is_string()) return value.text();
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (const bool* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (value.is_integer()) return std::to_string(value.whole());
  if (value.is<double>()) return float_text(value.real());
  if (value.is_list_or_tuple()) return list_text(**value.as<std::shared_ptr<const List>>(), budget);
  EK_CHECK(value.is_dict(), kData, value.kind(), " cannot be printed");
  return dict_text(value.entries(), budget);
}

}  // namespace evenkeel::jinja
