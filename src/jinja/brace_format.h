/// \file  Implements Python's str.format().
#pragma once

#include <string>
#include <string_view>

#include "jinja/budget.h"
#include "jinja/value.h"

namespace evenkeel::jinja {

/// Returns form.format(arguments). Supported are numbered, named and unnumbered fields, the conversions !s and !r, and
/// format specifications of fill, align, sign, zeros, width, precision and the types s d x X o e E f F g G.
/// \throws kData for attributes and items of arguments, other specifications, a missing argument, or a brace without
/// its partner.
std::string brace_format(std::string_view form, const Arguments& arguments, Budget& budget);

}  // namespace evenkeel::jinja
