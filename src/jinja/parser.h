/// \file  Parses the source of a template into its syntax tree (jinja/syntax.h).
#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// Parses a template. \throws kData "line N: ..." for invalid Jinja, or naming a construct outside the subset.
Syntax parse(std::string_view source);

}  // namespace evenkeel::jinja
