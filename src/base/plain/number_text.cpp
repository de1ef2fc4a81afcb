#include "base/plain/number_text.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace evenkeel {

std::string fixed(double value, int decimals) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string compact(double value) {
  constexpr std::array<std::string_view, 7> kUnits = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  for (; std::abs(value) >= 999.95 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  const int decimals = unit == 0 && value == std::floor(value) ? 0
                       : std::abs(value) < 10                  ? 3
                       : std::abs(value) < 100                 ? 2
                                                               : 1;
  return fixed(value, decimals) + std::string(kUnits[unit]);
}

}  // namespace evenkeel
