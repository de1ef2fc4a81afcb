#include "base/plain/clock.h"

#include <array>
#include <chrono>
#include <ctime>

namespace evenkeel {

namespace {

/// Returns date and time to the second, without a time zone.
std::string seconds_text(std::chrono::system_clock::time_point now) {
  const std::time_t time = std::chrono::system_clock::to_time_t(now);
  std::tm utc{};
  gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc)};
}

}  // namespace

std::string utc_now() { return seconds_text(std::chrono::system_clock::now()) + "Z"; }

std::string utc_now_ms() {
  const auto now = std::chrono::system_clock::now();
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  const auto digits = std::to_string(1000 + since).substr(1);
  return seconds_text(now) + "." + digits + "Z";
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_now() { return seconds_since(std::chrono::steady_clock::time_point()); }

std::chrono::steady_clock::duration steady_duration(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace evenkeel
