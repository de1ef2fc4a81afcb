// Implements upper and lower case, reads digits, and selects the characters that repr() escapes, as in Python.
#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "base/plain/error.h"
#include "base/unicode/unicode.h"
#include "jinja/full_case.h"
#include "jinja/text_functions.h"

namespace evenkeel::jinja {
namespace {

enum class Case { kLower, kUpper, kTitle };

/// Refuses characters newer than Unicode 14, because Python versions differ in them.
void check_known(uint32_t point, std::string_view what) {
  EK_CHECK(unicode::category(point) == utf8proc_category(static_cast<utf8proc_int32_t>(point)), kData, what,
           " of a character newer than Unicode 14 is not part of the subset");
}

bool is_cased(uint32_t point) {
  const int category = unicode::category(point);
  if (category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT)
    return true;
  return std::any_of(std::begin(kOtherCased), std::end(kOtherCased),
                     [&](const CasedRange& range) { return point >= range.first && point <= range.last; });
}

const FullCase* full_case(uint32_t point) {
  const auto* found = std::lower_bound(std::begin(kFullCases), std::end(kFullCases), point,
                                       [](const FullCase& one, uint32_t value) { return one.point < value; });
  return found != std::end(kFullCases) && found->point == point ? found : nullptr;
}

uint32_t simple_case(uint32_t point, Case wanted) {
  const auto given = static_cast<utf8proc_int32_t>(point);
  return static_cast<uint32_t>(wanted == Case::kLower   ? utf8proc_tolower(given)
                               : wanted == Case::kUpper ? utf8proc_toupper(given)
                                                        : utf8proc_totitle(given));
}

void append_case(std::string& out, uint32_t point, Case wanted, std::string_view what) {
  if (point < 0x80) {
    const bool lower = wanted == Case::kLower;
    const bool changes = lower ? point >= 'A' && point <= 'Z' : point >= 'a' && point <= 'z';
    out += static_cast<char>(changes ? point ^ 0x20 : point);
    return;
  }
  check_known(point, what);
  EK_CHECK(wanted != Case::kLower || point != 0x3A3, kData, what,
           " of the Greek capital sigma, which has two small forms, is not part of the subset");
  const auto* full = wanted == Case::kLower ? nullptr : full_case(point);
  if (wanted == Case::kLower && point == 0x130) {
    out += "i\u0307";
  } else if (!full) {
    unicode::append(out, simple_case(point, wanted));
  } else {
    for (const uint32_t one : wanted == Case::kUpper ? full->upper : full->title)
      if (one != 0) unicode::append(out, one);
  }
}

std::string in_case(std::string_view text, Case wanted, std::string_view what) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto one = unicode::decode(text.data() + at);
    append_case(out, one.value, wanted, what);
    at += one.length;
  }
  return out;
}

bool is_foreign_digit(uint32_t point) { return point >= 0x80 && unicode::category(point) == UTF8PROC_CATEGORY_ND; }

/// Returns the ASCII digit of a decimal digit. The ten digits of each script follow each other.
std::string_view digit_of(uint32_t point, std::string_view what) {
  check_known(point, what);
  uint32_t zero = point;
  while (is_foreign_digit(zero - 1)) --zero;
  return std::string_view("0123456789").substr((point - zero) % 10, 1);
}

}  // namespace

std::string lowered(std::string_view text, std::string_view what) { return in_case(text, Case::kLower, what); }
std::string uppered(std::string_view text, std::string_view what) { return in_case(text, Case::kUpper, what); }

std::string titled(std::string_view text, bool each_word, std::string_view what) {
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const auto one = unicode::decode(text.data() + at);
    append_case(out, one.value, begins ? Case::kTitle : Case::kLower, what);
    begins = each_word && !is_cased(one.value);
    at += one.length;
  }
  return out;
}

std::string with_ascii_digits(std::string_view text, std::string_view what) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto one = unicode::decode(text.data() + at);
    out += is_foreign_digit(one.value) ? digit_of(one.value, what) : text.substr(at, one.length);
    at += one.length;
  }
  return out;
}

bool is_printable(uint32_t point) {
  check_known(point, "printing a list or dict with a text");
  switch (unicode::category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return point == ' ';
    default:
      return true;
  }
}

}  // namespace evenkeel::jinja
