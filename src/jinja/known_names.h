/// \file  Checks the names of filters and tests when a template is parsed.
#pragma once

#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// Checks that all filters and tests are known to Jinja. As in Jinja's compiler, names inside {% if %} or `x if y else
/// z` are not checked, because they are an error only when they are evaluated. Names in a loop, macro or block inside
/// an {% if %} are checked. \throws kData "line N: ..."
void check_names(const Syntax& syntax);

}  // namespace evenkeel::jinja
