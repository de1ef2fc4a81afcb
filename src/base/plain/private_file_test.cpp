#include "base/plain/private_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdint>
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

/// Gives a file an access control list by which one user more may read it. \return false where the file system has none
bool let_read(const fs::path& file, uint32_t user, uint16_t group_rights) {
  constexpr uint16_t kRead = 4, kOwner = 0x01, kUser = 0x02, kGroup = 0x04, kMask = 0x10, kOther = 0x20;
  constexpr uint32_t kNobody = 0xffffffff, kVersion = 2;
  struct Entry {
    uint16_t tag, rights;
    uint32_t id;
  };
  const struct {
    uint32_t version;
    Entry entries[5];
  } list{kVersion,
         {{kOwner, kRead, kNobody},
          {kUser, kRead, user},
          {kGroup, group_rights, kNobody},
          {kMask, kRead, kNobody},
          {kOther, 0, kNobody}}};
  return ::setxattr(file.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0;
}

TEST(PrivateFile, MayBeGivenToThisUserByAnAccessControlList) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  ASSERT_TRUE(write_new_private_file(file, "secret"));
  if (!let_read(file, ::geteuid(), 0)) GTEST_SKIP() << "no access control lists here";
  EXPECT_EQ(mode_of(file), 0440U);
  require_private_file(file);
  ASSERT_TRUE(let_read(file, ::geteuid() + 1, 0));
  EXPECT_THROW(require_private_file(file), Error);
  ASSERT_TRUE(let_read(file, ::geteuid(), 4));
  EXPECT_THROW(require_private_file(file), Error);
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
