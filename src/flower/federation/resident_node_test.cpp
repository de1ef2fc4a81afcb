#include "flower/federation/resident_node.h"

#include <gtest/gtest.h>

#include "base/plain/file_lock.h"
#include "base/testing.h"

namespace evenkeel::flower {
namespace {

TEST(ResidentNode, HasItsFolderForItselfAlone) {
  const testing::TemporaryFolder folder;
  NodeClientOptions options;
  options.folder = folder.path();
  const auto run = [&] { run_resident_node(folder.path() / "node.sock", options, [] { return true; }); };
  {
    const FileLock other(folder.path() / "link.lock", "the folder");
    EXPECT_THROW(run(), InUse);
  }
  EXPECT_NO_THROW(run());
  EXPECT_FALSE(FileLock::holder(folder.path() / "link.lock"));
}

}  // namespace
}  // namespace evenkeel::flower
