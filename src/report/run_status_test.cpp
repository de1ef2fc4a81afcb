#include "report/run_status.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/testing.h"
#include "fed/store/run_checkpoint.h"
#include "records/testing.h"

namespace evenkeel::report {
namespace {

/// A thread stands for the process that trains: it makes and removes the folder of uploads all the time.
TEST(RunStatus, IsGivenWhileUploadsOfTheRoundAreRemoved) {
  const testing::TemporaryFolder folder;
  const auto run = folder.path() / "run";
  testing::write_run(run, "train.rounds = 2\n");
  const auto uploads = fed::Checkpoint(run / "checkpoint").uploads(1);
  fs::create_directories(uploads.parent_path());
  std::atomic<bool> over = false;
  std::jthread trains([&] {
    while (!over) {
      fs::create_directory(uploads);
      fs::remove(uploads);
    }
  });
  std::string failure;
  for (int i = 0; i < 300 && failure.empty(); ++i) try {
      EXPECT_TRUE(run_status(run).find("round 0 of 2") != std::string::npos);
    } catch (const Error& error) {
      failure = error.what();
    }
  over = true;
  EXPECT_EQ(failure, "");
}

}  // namespace
}  // namespace evenkeel::report
