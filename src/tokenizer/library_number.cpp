#include "tokenizer/library_number.h"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/plain/text.h"

namespace evenkeel::tokenizer {
namespace {

constexpr int kLargestPower = 308;

const std::array<double, kLargestPower + 1>& powers_of_ten() {
  static const auto table = [] {
    std::array<double, kLargestPower + 1> powers;
    for (int k = 0; k <= kLargestPower; ++k) powers[k] = std::strtod(("1e" + std::to_string(k)).c_str(), nullptr);
    return powers;
  }();
  return table;
}

/// Returns digits * 10^exponent with the roundings of the library.
double scaled(double digits, int exponent) {
  for (; exponent < -kLargestPower; exponent += kLargestPower) digits /= powers_of_ten()[kLargestPower];
  return exponent < 0 ? digits / powers_of_ten()[-exponent] : digits * powers_of_ten()[exponent];
}

}  // namespace

double as_library_reads(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific).ptr;
  const std::string_view written(text.data(), end - text.data());
  const size_t e = written.find('e');
  uint64_t digits = 0;
  int exponent = parse_number<int>(written.substr(e + (written[e + 1] == '+' ? 2 : 1))).value_or(0);
  bool fraction = false;
  for (const char c : written.substr(0, e)) {
    if (c >= '0' && c <= '9') {
      digits = 10 * digits + (c - '0');
      exponent -= fraction ? 1 : 0;
    }
    fraction |= c == '.';
  }
  const double size = scaled(static_cast<double>(digits), exponent);
  return value < 0 ? -size : size;
}

}  // namespace evenkeel::tokenizer
