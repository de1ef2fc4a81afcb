#include "base/plain/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

bool is_descriptor(int number) { return ::fcntl(number, F_GETFD) >= 0; }

TEST(Descriptor, IsClosedOnceByItsLastOwner) {
  const testing::TemporaryFolder folder;
  auto first = open_file(folder.path() / "file", O_WRONLY | O_CREAT);
  const int number = first.get();
  {
    const Descriptor second = std::move(first);
    EXPECT_EQ(second.get(), number);
    EXPECT_TRUE(is_descriptor(number));
  }
  EXPECT_FALSE(is_descriptor(number));
  EXPECT_FALSE(Descriptor().is_open());
}

TEST(Descriptor, AnAssignmentClosesWhatWasThere) {
  const testing::TemporaryFolder folder;
  auto opened = open_file(folder.path() / "one", O_WRONLY | O_CREAT);
  const int number = opened.get();
  auto other = open_file(folder.path() / "other", O_WRONLY | O_CREAT);
  const int kept = other.get();
  opened = std::move(other);
  EXPECT_FALSE(is_descriptor(number));
  EXPECT_EQ(opened.get(), kept);
  EXPECT_TRUE(is_descriptor(kept));
}

TEST(Descriptor, AFileThatIsNotThereIsNamed) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "none";
  EXPECT_FALSE(try_open(file, O_RDONLY).is_open());
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(testing::refusal([&] { open_file(file, O_RDONLY); }),
            "[io] " + file.string() + ": cannot be opened: No such file or directory");
}

TEST(Descriptor, WritesEverythingWhereItBelongsAndReadsUpToTheEnd) {
  const testing::TemporaryFolder folder;
  const auto opened = open_file(folder.path() / "file", O_RDWR | O_CREAT);
  ASSERT_TRUE(write_all(opened.get(), "abcdefg"));
  ASSERT_TRUE(write_all_at(opened.get(), 5, "XYZ"));
  EXPECT_EQ(read_file(folder.path() / "file"), "abcdeXYZ");
  std::string text(4, '-');
  EXPECT_EQ(read_at(opened.get(), 2, text), 4);
  EXPECT_EQ(text, "cdeX");
  EXPECT_EQ(read_at(opened.get(), 6, text), 2);
  EXPECT_EQ(text, "YZeX");
  EXPECT_EQ(read_at(opened.get(), 9, text), 0);
}

TEST(Descriptor, ContinuesAShortWrite) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const std::string sent(size_t{1} << 20, 'x');  // more than a pipe holds
  std::string received;
  std::thread reader([&] {
    std::array<char, 1000> block{};
    for (ssize_t length = 0; (length = ::read(reading.get(), block.data(), block.size())) > 0;)
      received.append(block.data(), static_cast<size_t>(length));
  });
  EXPECT_TRUE(write_all(writing.get(), sent));
  writing.close();
  reader.join();
  EXPECT_EQ(received, sent);
}

TEST(Descriptor, ARefusedWriteOrReadLeavesTheSystemsError) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "file";
  write_file_atomic(file, "text");
  const auto reading = open_file(file, O_RDONLY), writing = open_file(file, O_WRONLY);
  EXPECT_FALSE(write_all(reading.get(), "x"));
  EXPECT_EQ(errno, EBADF);
  EXPECT_FALSE(write_all_at(reading.get(), 0, "x"));
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(write_all(reading.get(), ""));
  std::array<char, 4> into{};
  EXPECT_EQ(read_at(writing.get(), 0, into), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
}  // namespace evenkeel
