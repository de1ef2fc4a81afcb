#include "base/plain/private_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

unsigned mode_of(const fs::path& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 ? status.st_mode & 0777U : 0;
}

TEST(PrivateFile, IsItsOwnersAloneAndNeverWrittenOver) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  EXPECT_TRUE(write_new_private_file(file, "first"));
  EXPECT_EQ(mode_of(file), 0600U);
  EXPECT_FALSE(write_new_private_file(file, "second"));
  EXPECT_EQ(read_file(file), "first");
  require_private_file(file);
}

TEST(PrivateFile, OthersMayNotReadIt) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  ASSERT_TRUE(write_new_private_file(file, "secret"));
  ::chmod(file.c_str(), 0640);
  try {
    require_private_file(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("chmod 600 " + file.string()), std::string::npos);
  }
}

TEST(PrivateFile, OverwrittenHasZerosAndItsLength) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  ASSERT_TRUE(write_new_private_file(file, "secret"));
  overwrite_private_file(file);
  EXPECT_EQ(read_file(file), std::string(6, '\0'));
  overwrite_private_file(folder.path() / "no such file");
  EXPECT_FALSE(path_exists(folder.path() / "no such file"));
}

TEST(PrivateFile, IsNotMadeInAFolderThatIsNotThere) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(static_cast<void>(write_new_private_file(folder.path() / "none/key", "x")), Error);
}

}  // namespace
}  // namespace evenkeel
