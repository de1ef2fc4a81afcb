/// \file  Parses the source of a template into its syntax tree (jinja/syntax.h).
#pragma once

#include <string_view>

#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// \throws kData "line N: ..." for what is not Jinja, or not part of the subset: its name is said.
Syntax parse(std::string_view source);

}  // namespace evenkeel::jinja
