#include "study/running/child_process.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

namespace evenkeel::study {
namespace {

/// What the child process of the next test does: this test program with a filter.
TEST(ChildProcess, DISABLED_PrintsItsVariables) {
  std::cerr << "rank " << std::getenv("LOCAL_RANK") << ", parent " << std::getenv("EVENKEEL_OF_PARENT") << std::endl;
}

TEST(ChildProcess, HasTheVariablesOfItsParentAndThoseThatAreReplaced) {
  ::setenv("LOCAL_RANK", "0", 1);
  ::setenv("EVENKEEL_OF_PARENT", "kept", 1);
  ChildProcess child({"--gtest_filter=*PrintsItsVariables", "--gtest_also_run_disabled_tests"}, {"LOCAL_RANK=3"});
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
  while (!child.exit_code() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(child.exit_code(), 0);
  const auto lines = child.lines();
  EXPECT_NE(std::find(lines.begin(), lines.end(), "rank 3, parent kept"), lines.end());
  EXPECT_STREQ(std::getenv("LOCAL_RANK"), "0");
  ::unsetenv("LOCAL_RANK");
  ::unsetenv("EVENKEEL_OF_PARENT");
}

}  // namespace
}  // namespace evenkeel::study
