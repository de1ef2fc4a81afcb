/// \file  Checks the names of filters and tests when a template is parsed.
#pragma once

#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// Checks that all filters and tests are known. As in Jinja's compiler, an unknown name inside {% if %} or `x if y else
/// z` is an error only when it is evaluated, unless it is in a loop, macro or block there. \throws kData "line N: ..."
void check_names(const Syntax& syntax);

}  // namespace evenkeel::jinja
