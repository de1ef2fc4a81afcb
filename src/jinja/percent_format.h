/// \file  "..." % values, as Python formats texts.
#pragma once

#include <string>
#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// Conversions s r d i u x X o e E f F g G and %%, each with flags, width and precision.
/// \param values  a tuple, or one value. \throws kData for other conversions, for keys in brackets, and for values that
/// are too few, too many or of another type
std::string percent_format(std::string_view form, const Value& values, Budget& budget);

}  // namespace evenkeel::jinja
