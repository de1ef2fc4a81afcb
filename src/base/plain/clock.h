/// \file  The time of day as records and messages write it.
#pragma once

#include <string>

namespace evenkeel {

/// Now, e.g. "2025-03-01T12:00:00Z".
std::string utc_now();

}  // namespace evenkeel
