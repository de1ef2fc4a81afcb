/// \file  Filters and tests that Jinja does not know are found when a template is read.
#pragma once

#include "jinja/syntax.h"

namespace evenkeel::jinja {

/// As Jinja's compiler: inside of {% if %} and of x if y else z, but not in a loop, macro or block in there, such a
/// name is an error only when it is reached. \throws kData "line N: ..."
void check_names(const Syntax& syntax);

}  // namespace evenkeel::jinja
