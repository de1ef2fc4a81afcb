#include "base/plain/dead_parts.h"

#include <gtest/gtest.h>

#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class DeadParts : public ::testing::Test {
 protected:
  fs::path make(const std::string& name) const {
    write_file_atomic(path_ / name, "half");
    return path_ / name;
  }

  testing::TemporaryFolder folder_;
  const fs::path path_ = folder_.path();
};

TEST_F(DeadParts, AreRemovedForTheFilesThatAreNamed) {
  const auto dead = make("nodes.json.part-12-0"), too = make("nodes.json.part-999999-7");
  const auto other = make("notes.txt.part-12-0"), whole = make("nodes.json"), alike = make("nodes.json.part-x-0"),
             longer = make("nodes.json.part-12-0.txt");
  remove_dead_parts(path_, [](std::string_view name) { return name == "nodes.json"; });
  for (const auto& gone : {dead, too}) EXPECT_FALSE(path_exists(gone)) << gone;
  for (const auto& kept : {other, whole, alike, longer}) EXPECT_TRUE(path_exists(kept)) << kept;
}

TEST_F(DeadParts, AFileThatIsBeingWrittenStays) {
  AtomicFile live(path_ / "nodes.json");
  live.write("whole");
  const auto dead = make("nodes.json.part-1-0");
  remove_dead_parts_of(path_ / "nodes.json");
  EXPECT_FALSE(path_exists(dead));
  live.commit();
  EXPECT_EQ(read_file(path_ / "nodes.json"), "whole");
  EXPECT_EQ(entries_of(path_).size(), 1u);
}

TEST_F(DeadParts, StayForAWhileWhereOtherMachinesWrite) {
  const auto dead = make("state.json.part-31-4"), young = make("state.json.part-32-4");
  fs::last_write_time(dead, fs::file_time_type::clock::now() - std::chrono::hours(2));
  remove_dead_parts(
      path_, [](std::string_view) { return true; }, std::chrono::hours(1));
  EXPECT_FALSE(path_exists(dead));
  EXPECT_TRUE(path_exists(young));
}

TEST_F(DeadParts, FoldersLinksAndMissingFoldersAreLeftAlone) {
  make_folders(path_ / "nodes.json.part-3-3");
  const auto target = make("target");
  fs::create_symlink(target, path_ / "nodes.json.part-4-4");
  const auto all = [](std::string_view) { return true; };
  remove_dead_parts(path_, all);
  remove_dead_parts(path_ / "nowhere", all);
  EXPECT_TRUE(path_exists(path_ / "nodes.json.part-3-3"));
  EXPECT_TRUE(fs::is_symlink(path_ / "nodes.json.part-4-4"));
  EXPECT_EQ(read_file(target), "half");
}

}  // namespace
}  // namespace evenkeel
