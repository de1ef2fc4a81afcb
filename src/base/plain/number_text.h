/// \file  Formats numbers for tables.
#pragma once

#include <string>

namespace evenkeel {

/// Formats `value` with `decimals` digits after the decimal point.
std::string fixed(double value, int decimals);
/// Formats `value` with four significant digits and a suffix k, M, G, T, P or E: "1.234 G". A whole number below 1000
/// has no decimals: "12".
std::string compact(double value);

}  // namespace evenkeel
