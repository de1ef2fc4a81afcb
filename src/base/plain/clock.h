/// \file  Formats the current time for records and messages, and measures elapsed time. Does not depend on LibTorch.
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
/// Returns the seconds of the steady clock. They count from an unknown time, the same for all processes of a machine.
double seconds_now();
/// Returns seconds as a duration of the steady clock: whole nanoseconds, rounded toward zero. REQUIRES at most 9e9
/// seconds, about 285 years.
std::chrono::steady_clock::duration steady_duration(double seconds);

}  // namespace evenkeel
