#include "fed/store/hashed_file.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel::fed {
namespace {

std::string content_of(int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), 'x');
  for (size_t i = 0; i < content.size(); i += 1009) content[i] = static_cast<char>(i % 251);
  return content;
}

/// Writes in pieces of unequal lengths. \param expected  what the file is told of its length
FileSeal written(const fs::path& file, std::string_view content, int64_t expected) {
  HashedFile out(file, expected);
  for (size_t length = 11; !content.empty(); length = 3 * length + 7) {
    out.write(content.substr(0, length));
    content.remove_prefix(std::min(length, content.size()));
  }
  return out.place();
}

TEST(HashedFile, HasTheSameBytesAndHashForAnyNumberOfThreads) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "5.upload.safetensors";
  const int threads = at::get_num_threads();
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, kTreePiece, kTreePiece + 1, 2 * kTreePiece + 77}) {
    const auto content = content_of(bytes);
    const auto expected_seal = fingerprint_of_bytes(content);
    for (const int count : {1, 2, 5})
      for (const int64_t expected : {bytes, int64_t{0}}) {
        at::set_num_threads(count);
        const auto seal = written(file, content, expected);
        EXPECT_TRUE(read_file(file) == content) << bytes << " bytes, " << count << " threads, expected " << expected;
        EXPECT_EQ(seal.fingerprint, expected_seal) << bytes << " bytes, " << count << " threads, expected " << expected;
        EXPECT_EQ(seal.bytes, bytes);
        EXPECT_NO_THROW(seal.check(folder.path()));
      }
  }
  at::set_num_threads(threads);
}

TEST(HashedFile, LeavesNothingWithoutPlace) {
  const testing::TemporaryFolder folder;
  const auto content = content_of(kTreePiece + 5);
  {
    HashedFile dropped(folder.path() / "never", kTreePiece + 5);
    dropped.write(content);
  }
  EXPECT_TRUE(entries_of(folder.path()).empty());
  EXPECT_THROW(HashedFile(folder.path() / "none" / "file", 1), Error);
}

/// Limits the length of the files of this process while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(HashedFile, AFileThatMayNotGrowIsAnErrorWithItsNameAndLeavesNothing) {
  const testing::TemporaryFolder folder;
  const auto content = content_of(2 * kTreePiece + 77);
  for (const size_t bytes : {size_t{5000}, content.size()}) {  // one piece, and several by several threads
    const FileLimit limit(4096);
    const auto said = testing::refusal([&] {
      written(folder.path() / "5.upload.safetensors", std::string_view(content).substr(0, bytes), 2 * kTreePiece);
    });
    EXPECT_NE(said.find("5.upload.safetensors: cannot be written"), std::string::npos) << said;
  }
  EXPECT_TRUE(entries_of(folder.path()).empty());
}

}  // namespace
}  // namespace evenkeel::fed
