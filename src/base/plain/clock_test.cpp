#include "base/plain/clock.h"

#include <gtest/gtest.h>

namespace evenkeel {
namespace {

using namespace std::chrono_literals;

TEST(Clock, SecondsBecomeADurationRoundedTowardZero) {
  EXPECT_EQ(steady_duration(0), 0ns);
  EXPECT_EQ(steady_duration(2.5), 2500ms);
  EXPECT_EQ(steady_duration(-0.25), -250ms);
  EXPECT_EQ(steady_duration(1.9e-9), 1ns);
  EXPECT_EQ(steady_duration(1e8), 100'000'000s);
}

TEST(Clock, SecondsNowAreThoseOfTheSteadyClock) {
  const auto begin = std::chrono::steady_clock::now();
  const double then = seconds_now();
  EXPECT_GE(then, std::chrono::duration<double>(begin.time_since_epoch()).count());
  EXPECT_GE(seconds_now(), then);
  EXPECT_GE(seconds_since(begin), 0);
}

}  // namespace
}  // namespace evenkeel
