/// \file  Formats the current time for records and messages, and measures elapsed time.
#pragma once

#include <chrono>
#include <string>

namespace evenkeel {

/// Returns the current UTC time to the second, e.g. "2025-03-01T12:00:00Z".
std::string utc_now();
/// Returns the current UTC time to the millisecond, e.g. "2025-03-01T12:00:00.250Z".
std::string utc_now_ms();
/// Returns the elapsed seconds.
double seconds_since(std::chrono::steady_clock::time_point begin);

}  // namespace evenkeel
