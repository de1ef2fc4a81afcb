#include "base/system/threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

TEST(PoolThreads, AreSetForTheCallingThread) {
  const int before = at::get_num_threads();
  use_pool_threads(3);
  EXPECT_EQ(at::get_num_threads(), 3);
  use_pool_threads(before);
  EXPECT_EQ(at::get_num_threads(), before);
}

/// The limit of a user counts all processes of the user, and does not hold for root.
TEST(PoolThreads, ThatTheSystemDoesNotStartAreReported) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become a user without processes";
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit one{1, 1};
    ::setrlimit(RLIMIT_NPROC, &one);
    if (::setuid(64'999) != 0) ::_exit(2);
    const auto text = testing::refusal([] { use_pool_threads(64); });
    ::_exit(text == "[io] no more threads can be started (ulimit -u, pids.max): lower --threads" ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace evenkeel
