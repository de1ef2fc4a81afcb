#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/json.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() {}
  size_t entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Files, AnAtomicWriteReplacesTheWholeFileAndLeavesNothingBeside) {
  const auto file = folder_ / "a.txt";
  write_file_atomic(file, "a long first content");
  const std::array<std::string_view, 3> pieces = {"new ", "", "content"};
  write_file_atomic(file, pieces);
  EXPECT_EQ(read_file(file), "new content");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, AnAbandonedWriteKeepsTheOldFile) {
  const auto file = folder_ / "a.txt";
  write_file_atomic(file, "old");
  {
    AtomicFile out(file);
    out.write("half of the n");
  }
  EXPECT_EQ(read_file(file), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(Files, AFailedWriteNamesTheFileAndKeepsTheOldOne) {
  fs::create_directory(folder_ / "target");
  write_file_atomic(folder_ / "target" / "x", "kept");
  try {
    write_file_atomic(folder_ / "target", "bytes");  // a rename cannot replace a folder that is not empty
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kIo);
    EXPECT_NE(std::string(error.what()).find("target: cannot be replaced"), std::string::npos);
  }
  EXPECT_EQ(read_file(folder_ / "target" / "x"), "kept");
  EXPECT_EQ(entries(), 1u);
  EXPECT_THROW(write_file_atomic(folder_ / "missing" / "x", ""), Error);
}

TEST_F(Files, AppendedLinesFollowEachOther) {
  append_line(folder_ / "log", "one");
  append_line(folder_ / "log", "two");
  EXPECT_EQ(read_file(folder_ / "log"), "one\ntwo\n");
}

TEST_F(Files, ReadsWhatHasNoSize) { EXPECT_FALSE(read_file("/proc/self/status").empty()); }

TEST_F(Files, RefusesToReadFoldersAndMissingFiles) {
  EXPECT_THROW(read_file(folder_), Error);
  EXPECT_THROW(read_file(folder_ / "missing"), Error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  EXPECT_THROW(sha256_file(folder_ / "missing"), Error);
}

TEST_F(Files, ANewFolderMayBeEmptyButNotFull) {
  make_new_folder(folder_ / "a" / "b");
  make_new_folder(folder_ / "a" / "b");
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  EXPECT_THROW(make_new_folder(folder_ / "a"), Error);
  write_file_atomic(folder_ / "file", "x");
  EXPECT_THROW(make_new_folder(folder_ / "file"), Error);
  EXPECT_THROW(make_new_folder(folder_ / "file" / "below"), Error);
}

TEST_F(Files, HashesEqualTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1'000'000, 'a');
  write_file_atomic(folder_ / "million", million);
  EXPECT_EQ(sha256_file(folder_ / "million"), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Files, AMappingShowsTheBytesEvenAfterTheFileIsReplaced) {
  write_file_atomic(folder_ / "m", "abc");
  const MappedFile mapped(folder_ / "m");
  write_file_atomic(folder_ / "m", "something else");
  const auto bytes = mapped.bytes();
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abc");
  write_file_atomic(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST_F(Files, BrokenJsonNamesFileByteAndKind) {
  write_file_atomic(folder_ / "x.json", "{\"a\": 1,}");
  try {
    load_json(folder_ / "x.json", kCheckpoint);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("x.json: not valid JSON at byte 9 of 9"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(parse_json("[1, 2]", "here").size(), 2u);
  EXPECT_THROW(parse_json("", "here"), Error);
  EXPECT_THROW(parse_json("\"\xff\"", "here"), Error);
}

TEST_F(Files, TheShippedFolderHoldsTheConfigs) { EXPECT_TRUE(fs::is_directory(shipped_folder() / "configs")); }

TEST_F(Files, ADataPathMayBeginWithTheDataVariable) {
  ::setenv("EVENKEEL_DATA", "/some/where", 1);
  EXPECT_EQ(expand_data_path("$EVENKEEL_DATA/commonsense", "data.path"), "/some/where/commonsense");
  EXPECT_EQ(expand_data_path("data/commonsense", "data.path"), "data/commonsense");
  ::unsetenv("EVENKEEL_DATA");
  EXPECT_THROW(expand_data_path("$EVENKEEL_DATA/commonsense", "data.path"), Error);
}

}  // namespace
}  // namespace evenkeel
