#include "base/system/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class Locked : public ::testing::Test {
 protected:
  std::string refusal() const {
    return testing::refusal([&] { const FolderLock lock(folder_); });
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Locked, ASecondLockFailsWithTheHolder) {
  std::optional<FolderLock> lock(folder_);
  const auto text = refusal();
  EXPECT_NE(text.find(concat("in use by process ", ::getpid(), " on ")), std::string::npos) << text;
  EXPECT_NE(text.find(" since 2"), std::string::npos) << text;
  lock.reset();
  EXPECT_EQ(refusal(), "no error");
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Locked, APipeInThePlaceOfTheLockIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo((folder_ / FolderLock::kFile).c_str(), 0600), 0);
  ::alarm(300);
  EXPECT_EQ(FolderLock::holder(folder_), std::nullopt);
  ::alarm(0);
}

TEST_F(Locked, HolderReturnsTheHolderWithoutLocking) {
  EXPECT_EQ(FolderLock::holder(folder_), std::nullopt);
  {
    const FolderLock lock(folder_);
    const auto who = FolderLock::holder(folder_).value_or("nobody");
    EXPECT_TRUE(who.starts_with(concat("process ", ::getpid(), " on "))) << who;
  }
  EXPECT_EQ(FolderLock::holder(folder_), std::nullopt);
  write_file_atomic(folder_ / FolderLock::kFile, "process 1 on a machine that lost power\n");
  EXPECT_EQ(FolderLock::holder(folder_), std::nullopt);
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Locked, ALockCanBeMoved) {
  FolderLock first(folder_);
  {
    const FolderLock second = std::move(first);
    EXPECT_NE(refusal(), "no error");
  }
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Locked, ALockEndsWithItsProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder_);
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(folder_ / FolderLock::kFile));
  EXPECT_EQ(refusal(), "no error");
}

TEST_F(Locked, RejectsAMissingFolder) { EXPECT_THROW(FolderLock(folder_ / "none"), Error); }

}  // namespace
}  // namespace evenkeel
