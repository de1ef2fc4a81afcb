#include "base/plain/file_lock.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <thread>
#include <vector>

#include "base/plain/error.h"
#include "base/plain/file_system.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace {
int error_of_flock = 0;  // what flock() fails with; 0: it works
}

/// Takes the place of the system's function in this program, as a file system without locks does.
extern "C" int flock(int descriptor, int operation) {
  if (error_of_flock == 0) return static_cast<int>(::syscall(SYS_flock, descriptor, operation));
  errno = error_of_flock;
  return -1;
}

namespace evenkeel {
namespace {

class WithoutLocks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { error_of_flock = GetParam(); }
  void TearDown() override { error_of_flock = 0; }

  std::string refusal() const {
    return testing::refusal([&] { const FileLock lock(file_, "the place"); });
  }
  /// Writes a lock file of an owner that differs from this process.
  void write(const std::function<void(LockOwner&)>& change) const {
    auto owner = LockOwner::of_this_process("");
    owner.by_system = false;
    change(owner);
    write_file_atomic(file_, owner.text());
  }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path(), file_ = folder_ / "lock";
};

INSTANTIATE_TEST_SUITE_P(FileLock, WithoutLocks, ::testing::Values(ENOSYS, ENOLCK, EOPNOTSUPP, EINVAL));

TEST_P(WithoutLocks, AFileIsTheLockUntilItIsReleased) {
  {
    FileLock lock(file_, "the place", "runs 1 2");
    EXPECT_EQ(FileLock::holder(file_).value().name.find(concat("process ", ::getpid(), " on ")), 0u);
    EXPECT_EQ(FileLock::holder(file_).value().note, "runs 1 2");
    EXPECT_NE(refusal().find(concat("the place is in use by process ", ::getpid(), " on ")), std::string::npos);
    const FileLock moved = std::move(lock);
    EXPECT_NE(refusal(), "no error");
  }
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_FALSE(FileLock::holder(file_));
  EXPECT_EQ(refusal(), "no error");
}

TEST_P(WithoutLocks, ALockOfAKilledProcessIsTakenOver) {
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(file_, "the place");
    ::raise(SIGKILL);
  }
  siginfo_t ended = {};
  ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT);  // it stays in the table of processes
  EXPECT_TRUE(fs::exists(file_));
  EXPECT_FALSE(FileLock::holder(file_));
  EXPECT_EQ(refusal(), "no error");
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_P(WithoutLocks, AnEndedOwnerIsOneOfAnotherStartOrBootOfThisHost) {
  write([](LockOwner& owner) { owner.started = "1"; });
  EXPECT_EQ(refusal(), "no error");
  write([](LockOwner& owner) { owner.boot = "before"; });
  EXPECT_EQ(refusal(), "no error");
  write([](LockOwner&) {});
  EXPECT_NE(refusal().find("is in use by"), std::string::npos);
}

TEST_P(WithoutLocks, AnOwnerOfAnotherHostOrContainerIsRefusedWithWhatToRemove) {
  const auto expect_refused = [&] {
    const auto text = refusal();
    const auto hint = concat("(its file system, ", file_system_of(file_),
                             ", has no locks: if that process has ended, remove ", file_.string(), ")");
    EXPECT_NE(text.find(hint), std::string::npos) << text;
    EXPECT_TRUE(fs::exists(file_));
    EXPECT_NE(FileLock::holder(file_).value().name.find(hint), std::string::npos);
  };
  write([](LockOwner& owner) { owner.host = "another"; });
  expect_refused();
  EXPECT_NE(refusal().find(" on another since "), std::string::npos);
  write([](LockOwner& owner) { owner.pids = "pid:[1]"; });
  expect_refused();
}

TEST_P(WithoutLocks, AFileThatNamesNobodyIsRefusedWithWhatToRemove) {
  write_file_atomic(file_, "");
  EXPECT_NE(refusal().find("if that process has ended, remove " + file_.string()), std::string::npos);
}

TEST_P(WithoutLocks, AnInterruptedTakeoverIsTakenOver) {
  const auto ended = [](LockOwner& owner) { owner.started = "1"; };
  write(ended);
  fs::rename(file_, file_.string() + ".takeover");
  write(ended);
  EXPECT_EQ(refusal(), "no error");
  EXPECT_TRUE(fs::is_empty(folder_));
}

/// Each process appends a line while it holds the lock, and so reads back what it wrote itself.
TEST_P(WithoutLocks, OfManyProcessesThatFindAnEndedOwnerOneHoldsTheLock) {
  write([](LockOwner& owner) { owner.started = "1"; });
  std::vector<pid_t> children;
  for (int i = 0; i < 12; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int held = 0; held < 20;) try {
          const FileLock lock(file_, "the place");
          ++held;
          write_file_atomic(folder_ / "holder", std::to_string(::getpid()));
          ::usleep(200);
          if (read_file(folder_ / "holder") != std::to_string(::getpid())) ::_exit(1);
        } catch (const Error&) {
          ::usleep(100);
        }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_FALSE(fs::exists(file_));
}

TEST_P(WithoutLocks, ALockThatIsAFileCountsOnAMachineThatHasLocks) {
  {
    const FileLock lock(file_, "the place");
    error_of_flock = 0;
    EXPECT_NE(refusal().find("is in use by"), std::string::npos);
    EXPECT_TRUE(FileLock::holder(file_));
  }
  write([](LockOwner& owner) { owner.started = "1"; });
  EXPECT_EQ(refusal(), "no error");
}

TEST_P(WithoutLocks, ALockOfTheSystemCountsOnAMountWithoutLocks) {
  error_of_flock = 0;
  const FileLock lock(file_, "the place");
  error_of_flock = GetParam();
  EXPECT_NE(refusal().find("is in use by"), std::string::npos);
  EXPECT_TRUE(FileLock::holder(file_));
}

TEST(FileLock, FailsForOtherErrorsOfTheSystem) {
  const testing::TemporaryFolder folder;
  error_of_flock = EIO;
  const auto text = testing::refusal([&] { const FileLock lock(folder.path() / "lock", "the place"); });
  error_of_flock = 0;
  EXPECT_NE(text.find("the place: cannot be locked: Input/output error"), std::string::npos) << text;
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(FileLock, ItsFilesAreRecognisedByName) {
  for (const auto* own : {"a/.lock", ".lock.part-12-3", ".lock.takeover", ".lock.takeover.part-12-3"})
    EXPECT_TRUE(FileLock::belongs_to(own, ".lock")) << own;
  for (const auto* other : {".locks", ".lock.part-12", "x.lock", ".lock.takeover.old"})
    EXPECT_FALSE(FileLock::belongs_to(other, ".lock")) << other;
}

TEST(LockOwner, IsReadAsItWasWritten) {
  const auto owner = LockOwner::of_this_process("runs 1");
  EXPECT_EQ(LockOwner::read(owner.text()), owner);
  EXPECT_EQ(is_running(owner), Running::kYes);
  for (const auto* text : {"", "{}", "process 1 on a machine", "[1]", R"({"host": 3})"})
    EXPECT_FALSE(LockOwner::read(text)) << text;
}

TEST(FileSystem, IsNamedByTheLongestMountPoint) {
  const testing::TemporaryFile mounts(
      "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
      "30 22 0:40 / /net/two\\040words rw,nosuid shared:1 - nfs4 server:/home rw\n"
      "31 22 0:41 / /net rw master:1 propagate_from:2 - autofs systemd rw\n"
      "not a mount\n");
  EXPECT_EQ(file_system_of("/net/two words/runs/a", mounts.path()), "nfs4 at /net/two words");
  EXPECT_EQ(file_system_of("/network/a", mounts.path()), "ext4 at /");
  EXPECT_EQ(file_system_of("/net/x", mounts.path()), "autofs at /net");
  EXPECT_EQ(file_system_of("/a", "/nowhere"), "unknown");
}

}  // namespace
}  // namespace evenkeel
