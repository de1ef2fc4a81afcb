/// \file  Formats the current time for records and messages.
#pragma once

#include <string>

namespace evenkeel {

/// Returns the current UTC time to the second, e.g. "2025-03-01T12:00:00Z".
std::string utc_now();

}  // namespace evenkeel
