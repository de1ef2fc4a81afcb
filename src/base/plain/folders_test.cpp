#include "base/plain/folders.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class Folders : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(Folders, MakeFoldersCreatesParentsAndAcceptsExistingFolders) {
  make_folders(folder_ / "c" / "d");
  make_folders(folder_ / "c" / "d" / "");
  EXPECT_TRUE(is_folder(folder_ / "c" / "d"));
  write_file_atomic(folder_ / "file", "x");
  EXPECT_THROW(make_folders(folder_ / "file" / "below"), Error);
}

TEST_F(Folders, TheParentIsOfTheFolderThatIsNamed) {
  const auto here = fs::current_path();
  for (const auto* name : {"runs/x", "runs/x/", "./runs//x/.", "runs/y/../x/"}) {
    EXPECT_EQ(without_trailing_slash(name), here / "runs/x") << name;
    EXPECT_EQ(parent_of(name), here / "runs") << name;
  }
  EXPECT_EQ(parent_of("x"), here);
  for (const auto* name : {"", ".", "./", "x/.."}) EXPECT_EQ(parent_of(name), here.parent_path()) << name;
  EXPECT_EQ(parent_of(folder_ / "x" / ""), folder_);
  EXPECT_EQ(parent_of("/"), "/");
}

TEST_F(Folders, ALinkIsFollowedToItsEnd) {
  const auto here = fs::canonical(folder_);
  make_folders(here / "there");
  fs::create_symlink("there/missing", here / "first");
  fs::create_symlink("first", here / "second");
  fs::create_symlink("there", here / "third");
  EXPECT_EQ(link_target(here / "second"), here / "there/missing");
  EXPECT_EQ(link_target(here / "third/x"), here / "there/x");
  EXPECT_EQ(link_target(here / "new"), here / "new");
}

TEST_F(Folders, RecognisesTemporariesOfKilledWrites) {
  EXPECT_TRUE(is_temporary_of("a/state.bin.part-17-0", "state.bin"));
  for (const auto* other : {"state.bin", "state.bin.part-17", "state.bin.part-x-0", "state.bin.part-1-0.txt",
                            "my-state.bin.part-1-0", "state.bin.part-1-", "notes.part-1-0"})
    EXPECT_FALSE(is_temporary_of(other, "state.bin")) << other;
}

TEST_F(Folders, FlushesAFolderAndNothingElse) {
  write_file_atomic(folder_ / "file", "abc");
  flush_folder(folder_);
  flush_folder(folder_ / "");
  EXPECT_EQ(read_file(folder_ / "file"), "abc");
  for (const auto& other : {folder_ / "missing", folder_ / "file"}) {
    const auto message = testing::refusal([&] { flush_folder(other); });
    EXPECT_NE(message.find(concat("[io]")), std::string::npos) << message;
    EXPECT_NE(message.find(concat(other.string(), ": cannot be opened: ")), std::string::npos) << message;
  }
}

TEST_F(Folders, ShortensAFileToItsFirstBytes) {
  const auto file = folder_ / "file";
  write_file_atomic(file, "abcdefg");
  shorten_file(file, 7);
  EXPECT_EQ(read_file(file), "abcdefg");
  shorten_file(file, 3);
  EXPECT_EQ(read_file(file), "abc");
  shorten_file(file, 5);
  EXPECT_EQ(read_file(file), "abc") << "a file is never made longer";
  shorten_file(file, 0);
  EXPECT_EQ(read_file(file), "");
  shorten_file(folder_ / "missing", 2);
  EXPECT_FALSE(path_exists(folder_ / "missing"));
}

TEST_F(Folders, AFileThatCannotBeShortenedIsNamed) {
  make_folders(folder_ / "in-the-way");
  const auto message = testing::refusal([&] { shorten_file(folder_ / "in-the-way", 0); });
  EXPECT_NE(message.find((folder_ / "in-the-way").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace evenkeel
