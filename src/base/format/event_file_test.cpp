#include "base/format/event_file.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

// The examples are those of RFC 3720, B.4.
TEST(Crc32c, OfThePublishedExamples) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

struct EventFile : ::testing::Test {
  testing::TemporaryFolder folder;
  fs::path file = folder.path() / "events";
  std::string bytes = event_file_head(1.5) +
                      event_record({.wall_time = 2.5, .step = 300, .scalars = {{"loss", 0.25}, {"a/b", -3}}}) +
                      event_record({.wall_time = 3.5, .step = 0, .scalars = {}});
};

TEST_F(EventFile, ReadsBackWhatWasWritten) {
  write_file_atomic(file, bytes);
  uint64_t whole = 0;
  const auto events = read_event_file(file, &whole);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(whole, bytes.size());
  EXPECT_EQ(events[0].step, 300);
  EXPECT_EQ(events[0].wall_time, 2.5);
  ASSERT_EQ(events[0].scalars.size(), 2u);
  EXPECT_EQ(events[0].scalars[0].tag, "loss");
  EXPECT_EQ(events[0].scalars[0].value, 0.25);
  EXPECT_EQ(events[0].scalars[1].value, -3);
  EXPECT_TRUE(events[1].scalars.empty());
}

TEST_F(EventFile, ACutLastRecordIsLeftOutAtEveryLength) {
  const auto head = event_file_head(1.5).size();
  for (size_t length = head; length < bytes.size(); ++length) {
    write_file_atomic(file, bytes.substr(0, length));
    uint64_t whole = 0;
    EXPECT_LT(read_event_file(file, &whole).size(), 2u) << length;
    EXPECT_LE(whole, length);
  }
}

TEST_F(EventFile, AChangedByteIsFound) {
  for (size_t at = 0; at < bytes.size(); ++at) {
    auto changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    write_file_atomic(file, changed);
    EXPECT_THROW(read_event_file(file), Error) << at;
  }
}

}  // namespace
}  // namespace evenkeel
