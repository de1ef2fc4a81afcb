/// \file  Finds values of `[method.ub-smoe]` that have no effect because of other keys. Private to UB-SMoE.
#pragma once

#include <string>
#include <vector>

#include "methods/ub_smoe_options.h"

namespace evenkeel::methods::ubsmoe {

/// Returns one line for each key whose value differs from the default and cannot change a run, such as
/// "method.ub-smoe.pg_clip is 3.0, but has no effect: pg is false", and one more line if phi stays 0 on the server
/// although it is added to scores. Empty for the defaults.
std::vector<std::string> values_without_effect(const Options& options);

}  // namespace evenkeel::methods::ubsmoe
