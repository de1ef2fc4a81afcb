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

TEST_F(Folders, RecognisesTemporariesOfKilledWrites) {
  EXPECT_TRUE(is_part_of("a/state.bin.part-17-0", "state.bin"));
  for (const auto* other : {"state.bin", "state.bin.part-17", "state.bin.part-x-0", "state.bin.part-1-0.txt",
                            "my-state.bin.part-1-0", "state.bin.part-1-", "notes.part-1-0"})
    EXPECT_FALSE(is_part_of(other, "state.bin")) << other;
}

}  // namespace
}  // namespace evenkeel
