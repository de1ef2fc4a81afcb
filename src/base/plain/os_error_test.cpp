#include "base/plain/os_error.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "base/plain/files.h"
#include "base/plain/mapped_files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

using testing::refusal;

/// Lowers a limit of this process for the life of the object.
class Lowered {
 public:
  Lowered(decltype(RLIMIT_NOFILE) which, rlim_t value) : which_(which) {
    ::getrlimit(which_, &before_);
    const rlimit lower{value, before_.rlim_max};
    ::setrlimit(which_, &lower);
  }
  ~Lowered() { ::setrlimit(which_, &before_); }
  Lowered(const Lowered&) = delete;
  Lowered& operator=(const Lowered&) = delete;

 private:
  decltype(RLIMIT_NOFILE) which_;
  rlimit before_{};
};

TEST(OsError, NamesTheLimitThatWasReached) {
  EXPECT_EQ(os_error_text(EMFILE), "Too many open files (ulimit -n)");
  EXPECT_EQ(os_error_text(EDQUOT), "Disk quota exceeded (quota -s)");
  EXPECT_NE(os_error_text(ENOMEM).find("vm.max_map_count"), std::string::npos);
  EXPECT_EQ(os_error_text(ENOENT), "No such file or directory");
  EXPECT_EQ(no_process_text(EAGAIN, "--ranks"),
            "no more processes can be started (ulimit -u, pids.max): lower --ranks");
  EXPECT_EQ(no_process_text(EACCES, "--ranks"), "Permission denied");
}

TEST(OsError, OfAThreadThatCannotBeStartedNamesTheFlag) {
  const auto error = os_error(std::system_error(EAGAIN, std::generic_category()));
  EXPECT_EQ(error.kind(), kIo);
  EXPECT_STREQ(error.what(), "[io] no more threads can be started (ulimit -u, pids.max): lower --threads");
  EXPECT_STREQ(os_error(std::system_error(EMFILE, std::system_category())).what(),
               "[io] Too many open files (ulimit -n)");
}

TEST(OsError, OfFilesNamesTheLimit) {
  const testing::TemporaryFolder folder;
  write_file_atomic(folder.path() / "file", "text");
  {
    const Lowered none(RLIMIT_NOFILE, 0);
    EXPECT_NE(
        refusal([&] { read_file(folder.path() / "file"); }).find("file: cannot be opened: Too many open files (ul"),
        std::string::npos);
    EXPECT_NE(refusal([&] { const MappedFile mapped(folder.path() / "file"); }).find("(ulimit -n)"), std::string::npos);
    EXPECT_NE(refusal([&] { entries_of(folder.path()); }).find("(ulimit -n)"), std::string::npos);
  }
  const auto before = std::signal(SIGXFSZ, SIG_IGN);  // as the program does
  {
    const Lowered small(RLIMIT_FSIZE, 1000);
    const auto text = refusal([&] { write_file_atomic(folder.path() / "large", std::string(5000, 'x')); });
    EXPECT_NE(text.find("large: cannot be written: File too large (ulimit -f"), std::string::npos) << text;
  }
  std::signal(SIGXFSZ, before);
  EXPECT_FALSE(fs::exists(folder.path() / "large"));
  const auto text = refusal([&] { write_file_atomic(folder.path() / std::string(300, 'n'), ""); });
  EXPECT_NE(text.find("File name too long (most file systems take 255 bytes"), std::string::npos) << text;
}

#ifndef __SANITIZE_ADDRESS__  // the sanitizer uses the address space itself
TEST(OsError, OfAMappingNamesTheLimit) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "file";
  write_file_atomic(file, "");
  fs::resize_file(file, uintmax_t{1} << 43);  // larger than what is left of the address space
  const Lowered small(RLIMIT_AS, rlim_t{1} << 42);
  const auto text = refusal([&] { const MappedFile mapped(file); });
  EXPECT_NE(text.find("file: cannot be mapped: Cannot allocate memory (free memory, ulimit -v, vm.max_map_count)"),
            std::string::npos)
      << text;
}
#endif

}  // namespace
}  // namespace evenkeel
