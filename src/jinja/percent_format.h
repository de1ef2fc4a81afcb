/// \file  Implements Python's string formatting "..." % values.
#pragma once

#include <string>
#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// Returns form % values. Supported are the conversions s r d i u x X o e E f F g G and %%, with flags, width and
/// precision.
/// \param values  a tuple, or a single value \param budget  charged for the result
/// \throws kData for other conversions, keys in parentheses, or a wrong number or type of values.
std::string percent_format(std::string_view form, const Value& values, Budget& budget);

}  // namespace evenkeel::jinja
