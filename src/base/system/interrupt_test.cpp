#include "base/system/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace evenkeel {
namespace {

constexpr int kSavesState = 3, kGoesOn = 4, kAtOnce = 130;  // exit codes

/// Receives signals in a process that watches interrupts, and ends it. \param hangup  what SIGHUP did before
[[noreturn]] void receive(std::initializer_list<int> signals, void (*hangup)(int) = SIG_DFL) {
  std::signal(SIGHUP, hangup);
  watch_interrupts();
  for (const int signal : signals) std::raise(signal);
  ::_exit(interrupt_requested() ? kSavesState : kGoesOn);
}

TEST(InterruptDeathTest, TheSecondRequestEndsTheProcessAtOnce) {
  for (const int first : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(receive({first}), ::testing::ExitedWithCode(kSavesState), "");
    EXPECT_EXIT(receive({first, SIGTERM}), ::testing::ExitedWithCode(kAtOnce), "");
    EXPECT_EXIT(receive({SIGHUP, first, SIGINT}), ::testing::ExitedWithCode(kAtOnce), "");
  }
}

TEST(InterruptDeathTest, ALostTerminalSavesTheStateHoweverOftenItIsTold) {
  EXPECT_EXIT(receive({SIGHUP}), ::testing::ExitedWithCode(kSavesState), "");
  EXPECT_EXIT(receive({SIGHUP, SIGHUP, SIGHUP}), ::testing::ExitedWithCode(kSavesState), "");
  EXPECT_EXIT(receive({SIGHUP, SIGTERM, SIGHUP}), ::testing::ExitedWithCode(kSavesState), "") << "as systemd does";
  EXPECT_EXIT(receive({SIGHUP, SIGHUP}, SIG_IGN), ::testing::ExitedWithCode(kGoesOn), "") << "as with nohup";
}

}  // namespace
}  // namespace evenkeel
